// Forward attention on the tensor cores with the running softmax of Dao et al. ("FlashAttention",
// 2022): a block for a tile of queries of one head; scores never leave the registers.
#include <cmath>

#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/attention_tiled.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

struct ForwardSides {
  StridedRows<const bf16> q, k, v;
  StridedRows<bf16> output;
  float* log_sum_exp;
};

// Over the four lanes that share a row.
__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// The running state of the two rows of a thread; `top` in units of log2.
template <int kD>
struct RunningSides {
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, sum[kD / 8][4] = {};

  // Scores of a tile become probabilities relative to the new maximum; hidden scores are -inf.
  __device__ void take(Square& score) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = -INFINITY;
#pragma unroll
      for (int n = 0; n < kPieces; ++n)
        highest = fmaxf(highest, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      const float next = fmaxf(top[half], quad_max(highest));
      const float base = next == -INFINITY ? 0.0f : next;
      const float factor = exp2f(top[half] - base);
      float part = 0;
#pragma unroll
      for (int n = 0; n < kPieces; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          score[n][e] = exp2f(score[n][e] - base);
          part += score[n][e];
        }
      total[half] = total[half] * factor + quad_sum(part);
      top[half] = next;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) sum[n][e] *= factor;
    }
  }
};

template <int kD>
__global__ void __launch_bounds__(kMmaThreads) forward_kernel(ForwardSides a, TileShape s) {
  extern __shared__ uint4 shared[];
  bf16* queries = reinterpret_cast<bf16*>(shared);
  bf16* keys = queries + kTileElements<kD>;
  bf16* values = keys + kTileElements<kD>;
  const Lane at;
  // The last tiles have the most keys: they start first.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kSide;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sequence = blockIdx.z;
  const auto k = head_rows(a.k, sequence, s.key_length, head / s.group, s.head_size);
  const auto v = head_rows(a.v, sequence, s.key_length, head / s.group, s.head_size);
  const ProbabilityMask mask = probability_mask(s, sequence, head);
  load_side<kD>(head_rows(a.q, sequence, s.query_length, head, s.head_size), first, s.query_length,
                s.head_size, queries);
  const int64_t own = first + 16 * at.warp + at.row;
  const int64_t visible[2] = {s.visible(own), s.visible(own + 8)};
  const int64_t seen[2] = {s.first_seen(sequence, own), s.first_seen(sequence, own + 8)};
  RunningSides<kD> rows;
  const int64_t last_key = s.visible(min(first + kSide, s.query_length) - 1);
  const int64_t first_key = s.first_seen(sequence, first) / kSide * kSide;
  for (int64_t key = first_key; key < last_key; key += kSide) {
    __syncthreads();
    load_side<kD>(k, key, s.key_length, s.head_size, keys);
    load_side<kD>(v, key, s.key_length, s.head_size, values);
    __syncthreads();
    Square score;
    multiply_sides<kD>(queries + 16 * at.warp * kRowStride<kD>, keys, score);
    const int limit[2] = {within_side(visible[0] - key), within_side(visible[1] - key)};
    const int from[2] = {within_side(seen[0] - key), within_side(seen[1] - key)};
#pragma unroll
    for (int n = 0; n < kPieces; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int place = 8 * n + at.column + e % 2;
        const bool is_seen = place >= from[e / 2] && place < limit[e / 2];
        score[n][e] = is_seen ? score[n][e] * (s.scale * kLog2e) : -INFINITY;
      }
    rows.take(score);
    if (mask.on) {
      const KeptBits kept =
          KeptBits::of_queries(mask, s.query_offset + first + 16 * at.warp, s.key_offset + key);
#pragma unroll
      for (int n = 0; n < kPieces; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) score[n][e] = kept(n, e) ? score[n][e] * mask.kept : 0.0f;
    }
    multiply_by_side<kD>(score, values, rows.sum);
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = rows.total[half];
    inverse[half] = total > 0 ? 1.0f / total : 0.0f;
    const int64_t query = own + 8 * half;
    if (at.column == 0 && query < s.query_length)
      a.log_sum_exp[(sequence * s.heads + head) * s.query_length + query] =
          total > 0 ? (rows.top[half] + log2f(total)) * kLn2 : -INFINITY;
  }
  store_side<kD>(rows.sum, inverse, own, s.query_length, s.head_size,
                 head_rows(a.output, sequence, s.query_length, head, s.head_size));
}

}  // namespace

bool mma_attention_forward(Stream& stream, const AttentionForward& call) {
  const AttentionShape& shape = call.shape;
  if (!suits_mma(shape, {call.q, call.k, call.v, call.output})) return false;
  const TileShape s = tile_shape(shape, {call.q, call.k, call.v});
  const ForwardSides a{read_rows<bf16>(call.q), read_rows<bf16>(call.k), read_rows<bf16>(call.v),
                       write_rows<bf16>(call.output), elements<float>(call.log_sum_exp)};
  with_side(shape.head_size, [&]<int kD>() {
    const auto kernel = forward_kernel<kD>;
    const size_t bytes = 3 * kTileElements<kD> * sizeof(bf16);
    allow_shared_memory(kernel, bytes, "attention_forward");
    const dim3 grid(blocks_for(shape.query_length, kSide), static_cast<unsigned>(shape.heads),
                    static_cast<unsigned>(shape.batch));
    kernel<<<grid, kMmaThreads, bytes, native(stream)>>>(a, s);
    check_launch("attention_forward");
  });
  return true;
}

}  // namespace trireme::inline TRIREME_BACKEND
