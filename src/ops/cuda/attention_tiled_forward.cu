// Forward attention over tiles with the running softmax of Dao et al. ("FlashAttention", 2022): a
// block for a tile of queries of one head; scores never leave the chip.
#include <cmath>

#include "ops/cuda/attention_tile.cuh"
#include "ops/cuda/attention_tiled.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

template <class T>
struct ForwardTiles {
  StridedRows<const T> q, k, v;
  StridedRows<T> output;
  float* log_sum_exp;
};

__device__ float row_max(float value) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
__device__ float row_total(float value) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// The running state of the rows of one thread.
template <int kM, int kC>
struct RunningRows {
  float top[kM], total[kM], sum[kM][kC];  // top in units of log2

  __device__ RunningRows() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      top[i] = -INFINITY;
      total[i] = 0;
#pragma unroll
      for (int c = 0; c < kC; ++c) sum[i][c] = 0;
    }
  }
  // Scores of a tile become probabilities relative to the new maximum; hidden scores are -inf.
  __device__ void take(float (&score)[kM][kM]) {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      float highest = score[i][0];
#pragma unroll
      for (int j = 1; j < kM; ++j) highest = fmaxf(highest, score[i][j]);
      const float next = fmaxf(top[i], row_max(highest));
      const float base = next == -INFINITY ? 0.0f : next;
      const float factor = exp2f(top[i] - base);
      float part = 0;
#pragma unroll
      for (int j = 0; j < kM; ++j) {
        score[i][j] = exp2f(score[i][j] - base);
        part += score[i][j];
      }
      total[i] = total[i] * factor + row_total(part);
      top[i] = next;
#pragma unroll
      for (int c = 0; c < kC; ++c) sum[i][c] *= factor;
    }
  }
};

template <int kD, int kTile, class T>
__global__ void __launch_bounds__(kTileThreads)
    attention_forward_kernel(ForwardTiles<T> a, TileShape s) {
  using S = TileSizes<kD, kTile>;
  extern __shared__ float4 shared4[];
  float* queries = reinterpret_cast<float*>(shared4);
  float* keys = queries + S::kTileFloats;  // keys, then values
  float* square = keys + S::kTileFloats;
  // The last tiles have the most keys: they start first.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sequence = blockIdx.z;
  const int tx = static_cast<int>(threadIdx.x % 16), ty = static_cast<int>(threadIdx.x / 16);
  const auto k = head_rows(a.k, sequence, s.key_length, head / s.group, s.head_size);
  const auto v = head_rows(a.v, sequence, s.key_length, head / s.group, s.head_size);
  const ProbabilityMask mask = probability_mask(s, sequence, head);
  load_tile<kD, kTile>(head_rows(a.q, sequence, s.query_length, head, s.head_size), first,
                       s.query_length, s.head_size, s.is_wide, queries);
  RunningRows<S::kM, S::kC> rows;
  const int64_t last_key = s.visible(min(first + kTile, s.query_length) - 1);
  const int64_t first_key = s.first_seen(sequence, first) / kTile * kTile;
  for (int64_t key = first_key; key < last_key; key += kTile) {
    __syncthreads();
    load_tile<kD, kTile>(k, key, s.key_length, s.head_size, s.is_wide, keys);
    __syncthreads();
    float score[S::kM][S::kM];
    multiply_rows<kD, kTile>(queries, keys, score);
#pragma unroll
    for (int i = 0; i < S::kM; ++i) {
      const int64_t query = first + ty * S::kM + i;
      const int64_t visible = s.visible(query);
      const int64_t seen = s.first_seen(sequence, query);
#pragma unroll
      for (int j = 0; j < S::kM; ++j) {
        const int64_t at = key + tx * S::kM + j;
        score[i][j] = at >= seen && at < visible ? score[i][j] * (s.scale * kLog2e) : -INFINITY;
      }
    }
    rows.take(score);
    if (mask.on) {
#pragma unroll
      for (int i = 0; i < S::kM; ++i) {
        float factor[S::kM];
        mask_factors(mask, s.query_offset + first + ty * S::kM + i, s.key_offset + key + tx * S::kM,
                     factor);
#pragma unroll
        for (int j = 0; j < S::kM; ++j) score[i][j] *= factor[j];
      }
    }
    store_square<kD, kTile>(score, square);
    __syncthreads();
    load_tile<kD, kTile>(v, key, s.key_length, s.head_size, s.is_wide, keys);
    __syncthreads();
    multiply_square<kD, kTile>(square, keys, rows.sum);
  }
  float inverse[S::kM];
#pragma unroll
  for (int i = 0; i < S::kM; ++i) {
    inverse[i] = rows.total[i] > 0 ? 1.0f / rows.total[i] : 0.0f;
    const int64_t query = first + ty * S::kM + i;
    if (tx == 0 && query < s.query_length)
      a.log_sum_exp[(sequence * s.heads + head) * s.query_length + query] =
          rows.total[i] > 0 ? (rows.top[i] + log2f(rows.total[i])) * kLn2 : -INFINITY;
  }
  store_rows<kD, kTile>(rows.sum, inverse, first, s.query_length, s.head_size,
                        head_rows(a.output, sequence, s.query_length, head, s.head_size));
}

// Floats of shared memory of a block.
struct ForwardFloats {
  template <int kD, int kTile>
  constexpr size_t operator()() const {
    using S = TileSizes<kD, kTile>;
    return 2 * S::kTileFloats + S::kSquareFloats;
  }
};

}  // namespace

void tiled_attention_forward(Stream& stream, const AttentionForward& call) {
  const AttentionShape& shape = call.shape;
  const TileShape s = tile_shape(shape, {call.q, call.k, call.v});
  with_type(call.q.dtype, "attention_forward", [&]<class T>() {
    const ForwardTiles<T> a{read_rows<T>(call.q), read_rows<T>(call.k), read_rows<T>(call.v),
                            write_rows<T>(call.output), elements<float>(call.log_sum_exp)};
    const ForwardFloats floats;
    with_tile(stream, shape.head_size, floats, [&]<int kD, int kTile>() {
      const auto kernel = attention_forward_kernel<kD, kTile, T>;
      const size_t bytes = floats.template operator()<kD, kTile>() * sizeof(float);
      allow_shared_memory(kernel, bytes, "attention_forward");
      const dim3 grid(blocks_for(shape.query_length, kTile), static_cast<unsigned>(shape.heads),
                      static_cast<unsigned>(shape.batch));
      kernel<<<grid, kTileThreads, bytes, native(stream)>>>(a, s);
      check_launch("attention_forward");
    });
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
