// Cross-entropy over a vocabulary split by columns, in three calls around two all-reduces: a block
// for a row, logits read once a call and turned into their gradient in place.
#include <cmath>

#include "ops/cross_entropy_check.hpp"
#include "ops/cuda/kernel.cuh"
#include "ops/cuda/reduce.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 512;

// The error of __expf grows with its argument; bf16 results do not see it.
template <class T>
__device__ float exponential(float x) {
  if constexpr (std::is_same_v<T, bf16>)
    return __expf(x);
  else
    return expf(x);
}

template <class T>
struct LossArguments {
  T* logits;
  int64_t stride, rows, cols, valid, first_row;
  const int32_t* targets;
  const float* mask;
  float *row_max, *sums, *loss;
};

// body(column, value) for the valid columns of a row, a pack of V at a time.
template <class T, int V, class Body>
__device__ void for_columns(const T* row, int64_t valid, const Body& body) {
#pragma unroll 2
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * V; column < valid;
       column += kThreads * V) {
    float value[V];
    load(row + column, value);
#pragma unroll
    for (int j = 0; j < V; ++j)
      if (column + j < valid) body(column + j, value[j]);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) max_kernel(LossArguments<T> a) {
  __shared__ float shared[32];
  const float lowest = -INFINITY;
  float top = lowest;
  for_columns<T, V>(a.logits + blockIdx.x * a.stride, a.valid,
                    [&](int64_t, float x) { top = fmaxf(top, x); });
  top = block_reduce(top, MaxOf{}, shared, lowest);
  if (threadIdx.x == 0) a.row_max[blockIdx.x] = top;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) sums_kernel(LossArguments<T> a) {
  __shared__ float shared[32];
  const T* row = a.logits + blockIdx.x * a.stride;
  const float top = a.row_max[blockIdx.x];
  float sum = 0;
  for_columns<T, V>(row, a.valid, [&](int64_t, float x) { sum += exponential<T>(x - top); });
  sum = block_reduce(sum, SumOf{}, shared, 0.0f);
  if (threadIdx.x != 0) return;
  const int64_t target = a.targets[blockIdx.x] - a.first_row;
  a.sums[blockIdx.x] = sum;
  a.sums[a.rows + blockIdx.x] = target >= 0 && target < a.valid ? to_float(row[target]) : 0.0f;
}

// logits = (softmax - onehot) where counted, else 0; padding is 0.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) gradient_kernel(LossArguments<T> a) {
  T* row = a.logits + blockIdx.x * a.stride;
  const bool counts = a.mask[blockIdx.x] != 0;
  const int64_t target = a.targets[blockIdx.x] - a.first_row;
  const float top = a.row_max[blockIdx.x];
  const float inverse = 1.0f / a.sums[blockIdx.x];
  const int64_t filled = counts ? a.valid : 0;
#pragma unroll 2
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * V; column < a.cols;
       column += kThreads * V) {
    float value[V] = {};
    if (counts) load(row + column, value);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float softmax = exponential<T>(value[j] - top) * inverse;
      value[j] = column + j < filled ? softmax - (column + j == target ? 1.0f : 0.0f) : 0.0f;
    }
    store(row + column, value);
  }
}

// The loss of every row, and its sum in a fixed order: one block.
__global__ void __launch_bounds__(1024)
    loss_kernel(int64_t rows, const float* mask, const float* row_max, const float* sums,
                float* loss, StepState* state) {
  __shared__ double shared[32];
  double total = 0, counted = 0;
  for (int64_t r = threadIdx.x; r < rows; r += 1024) {
    const bool counts = mask[r] != 0;
    const float value = counts ? logf(sums[r]) + row_max[r] - sums[rows + r] : 0.0f;
    loss[r] = value;
    total += value;
    counted += counts ? 1 : 0;
  }
  if (state == nullptr) return;
  total = block_reduce(total, SumOf{}, shared, 0.0);
  counted = block_reduce(counted, SumOf{}, shared, 0.0);
  if (threadIdx.x != 0) return;
  state->sums[0] = static_cast<float>(state->sums[0] + total);
  state->sums[1] = static_cast<float>(state->sums[1] + counted);
}

template <class T>
LossArguments<T> arguments(const CrossEntropy& call) {
  return {elements<T>(call.logits),
          call.logits.stride,
          call.logits.rows,
          call.logits.cols,
          call.valid,
          call.first_row,
          elements<int32_t>(call.targets),
          elements<float>(call.mask),
          elements<float>(call.row_max),
          elements<float>(call.sums),
          elements<float>(call.loss)};
}

}  // namespace

void cross_entropy_max(Stream& stream, const CrossEntropy& call) {
  check_cross_entropy(call, "cross_entropy_max");
  if (call.logits.rows == 0) return;
  with_type(call.logits.dtype, wide(call.logits), "cross_entropy_max", [&]<class T, int V>() {
    max_kernel<T, V>
        <<<blocks_for(call.logits.rows, 1), kThreads, 0, native(stream)>>>(arguments<T>(call));
    check_launch("cross_entropy_max");
  });
}

void cross_entropy_sums(Stream& stream, const CrossEntropy& call) {
  check_cross_entropy(call, "cross_entropy_sums");
  if (call.logits.rows == 0) return;
  with_type(call.logits.dtype, wide(call.logits), "cross_entropy_sums", [&]<class T, int V>() {
    sums_kernel<T, V>
        <<<blocks_for(call.logits.rows, 1), kThreads, 0, native(stream)>>>(arguments<T>(call));
    check_launch("cross_entropy_sums");
  });
}

void cross_entropy_finish(Stream& stream, const CrossEntropy& call) {
  check_cross_entropy(call, "cross_entropy_finish");
  const int64_t n = call.logits.rows;
  if (n == 0) return;
  loss_kernel<<<1, 1024, 0, native(stream)>>>(
      n, elements<float>(call.mask), elements<float>(call.row_max), elements<float>(call.sums),
      elements<float>(call.loss), call.count ? call.state : nullptr);
  check_launch("cross_entropy_finish: loss");
  if (!call.write_gradient) return;
  with_type(call.logits.dtype, wide(call.logits), "cross_entropy_finish", [&]<class T, int V>() {
    gradient_kernel<T, V><<<blocks_for(n, 1), kThreads, 0, native(stream)>>>(arguments<T>(call));
    check_launch("cross_entropy_finish: gradient");
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
