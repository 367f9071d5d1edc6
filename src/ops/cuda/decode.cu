// Generation: new keys and values to the cache, and attention of one token a sequence over it. A
// block for a query head of one token; each warp walks every 8th key with a softmax of its own, and
// the eight are merged in the end, always in the same order.
#include <cmath>

#include "ops/cuda/attention_tiled.hpp"
#include "ops/cuda/kernel.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/decode_check.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const T* from, int64_t stride, const int32_t* rows, T* to, int64_t to_stride,
                   int64_t width) {
  const T* source = from + blockIdx.x * stride;
  T* target = to + rows[blockIdx.x] * to_stride;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) target[i] = source[i];
}

template <class T>
struct DecodeArguments {
  const T *q, *k, *v;
  T* output;
  int64_t q_stride, k_stride, v_stride, output_stride, capacity;
  const int32_t* rows;
  int group, head_size;
  float scale;
};

// kE: elements of a head that a lane holds: lane, lane + 32, ...
template <class T, int kE>
__global__ void __launch_bounds__(kThreads) decode_kernel(DecodeArguments<T> a) {
  __shared__ float sums[kWarps][kE * 32];
  __shared__ float tops[kWarps], totals[kWarps];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int head = static_cast<int>(blockIdx.y);
  const int64_t row = a.rows[blockIdx.x];
  const int64_t start = row / a.capacity * a.capacity;
  const int64_t in_head = static_cast<int64_t>(head / a.group) * a.head_size;
  float query[kE], sum[kE] = {};
#pragma unroll
  for (int e = 0; e < kE; ++e) {
    const int i = e * 32 + lane;
    query[e] = i < a.head_size
                   ? to_float(a.q[blockIdx.x * a.q_stride + head * a.head_size + i]) * a.scale
                   : 0.0f;
  }
  float top = -INFINITY, total = 0;
  for (int64_t key = start + warp; key <= row; key += kWarps) {
    float score = 0;
#pragma unroll
    for (int e = 0; e < kE; ++e)
      if (e * 32 + lane < a.head_size)
        score += query[e] * to_float(a.k[key * a.k_stride + in_head + e * 32 + lane]);
    score = warp_reduce(score, SumOf{});
    const float next = fmaxf(top, score);
    const float decay = expf(top - next), p = expf(score - next);
    top = next;
    total = total * decay + p;
#pragma unroll
    for (int e = 0; e < kE; ++e) {
      const float value = e * 32 + lane < a.head_size
                              ? to_float(a.v[key * a.v_stride + in_head + e * 32 + lane])
                              : 0.0f;
      sum[e] = sum[e] * decay + p * value;
    }
  }
#pragma unroll
  for (int e = 0; e < kE; ++e) sums[warp][e * 32 + lane] = sum[e];
  if (lane == 0) tops[warp] = top, totals[warp] = total;
  __syncthreads();
  float highest = -INFINITY, whole = 0;
  for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, tops[w]);
  for (int w = 0; w < kWarps; ++w) whole += totals[w] * expf(tops[w] - highest);
  for (int i = static_cast<int>(threadIdx.x); i < a.head_size; i += kThreads) {
    float value = 0;
    for (int w = 0; w < kWarps; ++w) value += sums[w][i] * expf(tops[w] - highest);
    a.output[blockIdx.x * a.output_stride + head * a.head_size + i] = from_float<T>(value / whole);
  }
}

}  // namespace

void scatter_rows(Stream& stream, const ScatterRows& call) {
  check_scatter(call);
  if (call.from.empty()) return;
  with_type(call.from.dtype, "scatter_rows", [&]<class T>() {
    scatter_kernel<T><<<blocks_for(call.from.rows, 1), kThreads, 0, native(stream)>>>(
        elements<const T>(call.from), call.from.stride, elements<int32_t>(call.rows),
        elements<T>(call.to), call.to.stride, call.from.cols);
    check_launch("scatter_rows");
  });
}

void attention_decode(Stream& stream, const AttentionDecode& call) {
  check_decode(call, kLargestHead);
  if (call.q.empty()) return;
  with_type(call.q.dtype, "attention_decode", [&]<class T>() {
    const DecodeArguments<T> a{elements<const T>(call.q),
                               elements<const T>(call.k),
                               elements<const T>(call.v),
                               elements<T>(call.output),
                               call.q.stride,
                               call.k.stride,
                               call.v.stride,
                               call.output.stride,
                               call.capacity,
                               elements<int32_t>(call.rows),
                               static_cast<int>(call.heads / call.kv_heads),
                               static_cast<int>(call.head_size),
                               call.scale};
    const dim3 grid(blocks_for(call.q.rows, 1), static_cast<unsigned>(call.heads));
    const auto launch = [&](auto kernel) {
      kernel<<<grid, kThreads, 0, native(stream)>>>(a);
      check_launch("attention_decode");
    };
    if (call.head_size <= 64) return launch(decode_kernel<T, 2>);
    if (call.head_size <= 128) return launch(decode_kernel<T, 4>);
    launch(decode_kernel<T, 8>);
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
