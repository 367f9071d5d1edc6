// Gradient of tiled attention without atomics: one kernel owns tiles of keys and walks the queries
// that see them, another owns tiles of queries and walks their keys. Probabilities are made again
// from log_sum_exp.
#include <cmath>

#include "ops/cuda/attention_tile.cuh"
#include "ops/cuda/attention_tiled.hpp"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

template <class T>
struct BackwardTiles {
  StridedRows<const T> q, k, v, output, d_output;
  StridedRows<T> d_q, d_k, d_v;
  const float* log_sum_exp;
  float* delta;  // [sequences of a launch, H, Tq]: sum over d of output * d_output
  int64_t first_sequence;
};

// One warp for a row of one head.
template <class T>
__global__ void __launch_bounds__(kTileThreads) delta_kernel(BackwardTiles<T> a, TileShape s) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kTileThreads / 32) + threadIdx.x / 32;
  if (row >= s.query_length) return;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sequence = a.first_sequence + blockIdx.z;
  const auto o = head_rows(a.output, sequence, s.query_length, head, s.head_size);
  const auto d = head_rows(a.d_output, sequence, s.query_length, head, s.head_size);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x % 32); i < s.head_size; i += 32)
    sum += to_float(o.data[row * o.stride + i]) * to_float(d.data[row * d.stride + i]);
  sum = warp_reduce(sum, SumOf{});
  if (threadIdx.x % 32 == 0) a.delta[(blockIdx.z * s.heads + head) * s.query_length + row] = sum;
}

// What the gradient of a score needs of its query.
struct QueryState {
  float log_sum_exp, delta;
};
template <class T>
__device__ QueryState query_state(const BackwardTiles<T>& a, const TileShape& s, int64_t sequence,
                                  int head, int64_t query) {
  if (query >= s.query_length) return {0, 0};
  const int64_t at = (sequence * s.heads + head) * s.query_length + query;
  const int64_t piece = ((sequence - a.first_sequence) * s.heads + head) * s.query_length + query;
  return {a.log_sum_exp[at] * kLog2e, a.delta[piece]};
}

// Owns a tile of keys of one key head: d_k and d_v. Rows of squares are keys, columns are queries.
template <int kD, int kTile, class T>
__global__ void __launch_bounds__(kTileThreads)
    key_gradient_kernel(BackwardTiles<T> a, TileShape s) {
  using S = TileSizes<kD, kTile>;
  extern __shared__ float4 shared4[];
  float* keys = reinterpret_cast<float*>(shared4);
  float* values = keys + S::kTileFloats;
  float* queries = values + S::kTileFloats;
  float* d_outputs = queries + S::kTileFloats;
  float* square = d_outputs + S::kTileFloats;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int64_t sequence = a.first_sequence + blockIdx.z;
  const int tx = static_cast<int>(threadIdx.x % 16), ty = static_cast<int>(threadIdx.x / 16);
  load_tile<kD, kTile>(head_rows(a.k, sequence, s.key_length, kv_head, s.head_size), first,
                       s.key_length, s.head_size, s.is_wide, keys);
  load_tile<kD, kTile>(head_rows(a.v, sequence, s.key_length, kv_head, s.head_size), first,
                       s.key_length, s.head_size, s.is_wide, values);
  float d_key[S::kM][S::kC] = {}, d_value[S::kM][S::kC] = {};
  // The first query that sees the first key of the tile.
  const int64_t start = max(int64_t{0}, s.key_offset + first - s.query_offset) / kTile * kTile;
  for (int h = 0; h < s.group; ++h) {
    const int head = kv_head * s.group + h;
    const auto q = head_rows(a.q, sequence, s.query_length, head, s.head_size);
    const auto d_o = head_rows(a.d_output, sequence, s.query_length, head, s.head_size);
    const ProbabilityMask mask = probability_mask(s, sequence, head);
    for (int64_t query = start; query < s.query_length; query += kTile) {
      if (s.first_seen(sequence, query) >= first + kTile) break;  // as all later ones
      __syncthreads();
      load_tile<kD, kTile>(q, query, s.query_length, s.head_size, s.is_wide, queries);
      load_tile<kD, kTile>(d_o, query, s.query_length, s.head_size, s.is_wide, d_outputs);
      __syncthreads();
      float p[S::kM][S::kM], d_p[S::kM][S::kM], kept[S::kM][S::kM];
      multiply_rows<kD, kTile>(keys, queries, p);
      multiply_rows<kD, kTile>(values, d_outputs, d_p);
#pragma unroll
      for (int j = 0; j < S::kM; ++j) {
        const int64_t own = query + tx * S::kM + j;
        const QueryState state = query_state(a, s, sequence, head, own);
        const int64_t visible = own < s.query_length ? s.visible(own) : 0;
        const int64_t from = s.first_seen(sequence, own);
        float factor[S::kM];
        if (mask.on)
          mask_factors(mask, s.query_offset + own, s.key_offset + first + ty * S::kM, factor);
#pragma unroll
        for (int i = 0; i < S::kM; ++i) {
          const int64_t at = first + ty * S::kM + i;
          const bool seen = at >= from && at < visible;
          const float f = mask.on ? factor[i] : 1.0f;
          const float probability =
              seen ? exp2f(p[i][j] * (s.scale * kLog2e) - state.log_sum_exp) : 0.0f;
          kept[i][j] = probability * f;
          p[i][j] = probability * (d_p[i][j] * f - state.delta);
        }
      }
      store_square<kD, kTile>(kept, square);
      __syncthreads();
      multiply_square<kD, kTile>(square, d_outputs, d_value);
      __syncthreads();
      store_square<kD, kTile>(p, square);
      __syncthreads();
      multiply_square<kD, kTile>(square, queries, d_key);
    }
  }
  float one[S::kM], scale[S::kM];
#pragma unroll
  for (int i = 0; i < S::kM; ++i) one[i] = 1, scale[i] = s.scale;
  store_rows<kD, kTile>(d_value, one, first, s.key_length, s.head_size,
                        head_rows(a.d_v, sequence, s.key_length, kv_head, s.head_size));
  store_rows<kD, kTile>(d_key, scale, first, s.key_length, s.head_size,
                        head_rows(a.d_k, sequence, s.key_length, kv_head, s.head_size));
}

// Owns a tile of queries of one head: d_q. Rows of squares are queries, columns are keys.
template <int kD, int kTile, class T>
__global__ void __launch_bounds__(kTileThreads)
    query_gradient_kernel(BackwardTiles<T> a, TileShape s) {
  using S = TileSizes<kD, kTile>;
  extern __shared__ float4 shared4[];
  float* queries = reinterpret_cast<float*>(shared4);
  float* d_outputs = queries + S::kTileFloats;
  float* keys = d_outputs + S::kTileFloats;
  float* values = keys + S::kTileFloats;
  float* square = values + S::kTileFloats;
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sequence = a.first_sequence + blockIdx.z;
  const int tx = static_cast<int>(threadIdx.x % 16), ty = static_cast<int>(threadIdx.x / 16);
  const auto k = head_rows(a.k, sequence, s.key_length, head / s.group, s.head_size);
  const auto v = head_rows(a.v, sequence, s.key_length, head / s.group, s.head_size);
  const ProbabilityMask mask = probability_mask(s, sequence, head);
  load_tile<kD, kTile>(head_rows(a.q, sequence, s.query_length, head, s.head_size), first,
                       s.query_length, s.head_size, s.is_wide, queries);
  load_tile<kD, kTile>(head_rows(a.d_output, sequence, s.query_length, head, s.head_size), first,
                       s.query_length, s.head_size, s.is_wide, d_outputs);
  QueryState state[S::kM];
#pragma unroll
  for (int i = 0; i < S::kM; ++i)
    state[i] = query_state(a, s, sequence, head, first + ty * S::kM + i);
  float d_query[S::kM][S::kC] = {};
  const int64_t last_key = s.visible(min(first + kTile, s.query_length) - 1);
  const int64_t first_key = s.first_seen(sequence, first) / kTile * kTile;
  for (int64_t key = first_key; key < last_key; key += kTile) {
    __syncthreads();
    load_tile<kD, kTile>(k, key, s.key_length, s.head_size, s.is_wide, keys);
    load_tile<kD, kTile>(v, key, s.key_length, s.head_size, s.is_wide, values);
    __syncthreads();
    float p[S::kM][S::kM], d_p[S::kM][S::kM];
    multiply_rows<kD, kTile>(queries, keys, p);
    multiply_rows<kD, kTile>(d_outputs, values, d_p);
#pragma unroll
    for (int i = 0; i < S::kM; ++i) {
      const int64_t own = first + ty * S::kM + i;
      const int64_t visible = s.visible(own);
      const int64_t from = s.first_seen(sequence, own);
      float factor[S::kM];
      if (mask.on)
        mask_factors(mask, s.query_offset + own, s.key_offset + key + tx * S::kM, factor);
#pragma unroll
      for (int j = 0; j < S::kM; ++j) {
        const int64_t at = key + tx * S::kM + j;
        const bool seen = at >= from && at < visible;
        const float f = mask.on ? factor[j] : 1.0f;
        const float probability =
            seen ? exp2f(p[i][j] * (s.scale * kLog2e) - state[i].log_sum_exp) : 0.0f;
        p[i][j] = probability * (d_p[i][j] * f - state[i].delta);
      }
    }
    store_square<kD, kTile>(p, square);
    __syncthreads();
    multiply_square<kD, kTile>(square, keys, d_query);
  }
  float scale[S::kM];
#pragma unroll
  for (int i = 0; i < S::kM; ++i) scale[i] = s.scale;
  store_rows<kD, kTile>(d_query, scale, first, s.query_length, s.head_size,
                        head_rows(a.d_q, sequence, s.query_length, head, s.head_size));
}

// Sequences [a.first_sequence, + sequences) of one call.
template <int kD, int kTile, class T>
void launch(Stream& stream, const AttentionShape& shape, const TileShape& s,
            const BackwardTiles<T>& a, unsigned sequences, size_t bytes) {
  const auto heads = static_cast<unsigned>(shape.heads);
  if (shape.query_length > 0) {
    const dim3 rows(blocks_for(shape.query_length, kTileThreads / 32), heads, sequences);
    delta_kernel<T><<<rows, kTileThreads, 0, native(stream)>>>(a, s);
    check_launch("attention_backward: row products");
    const auto kernel = query_gradient_kernel<kD, kTile, T>;
    allow_shared_memory(kernel, bytes, "attention_backward: queries");
    const dim3 grid(blocks_for(shape.query_length, kTile), heads, sequences);
    kernel<<<grid, kTileThreads, bytes, native(stream)>>>(a, s);
    check_launch("attention_backward: queries");
  }
  if (shape.key_length == 0) return;
  const auto kernel = key_gradient_kernel<kD, kTile, T>;
  allow_shared_memory(kernel, bytes, "attention_backward: keys");
  const dim3 grid(blocks_for(shape.key_length, kTile), static_cast<unsigned>(shape.kv_heads),
                  sequences);
  kernel<<<grid, kTileThreads, bytes, native(stream)>>>(a, s);
  check_launch("attention_backward: keys");
}

// Floats of shared memory of a block.
struct BackwardFloats {
  template <int kD, int kTile>
  constexpr size_t operator()() const {
    using S = TileSizes<kD, kTile>;
    return 4 * S::kTileFloats + S::kSquareFloats;
  }
};

}  // namespace

void tiled_attention_backward(Stream& stream, const AttentionBackward& call) {
  const AttentionShape& shape = call.shape;
  const int64_t of_sequence = std::max<int64_t>(1, shape.heads * shape.query_length);
  const int64_t at_once = static_cast<int64_t>(kWorkBytes / sizeof(float)) / of_sequence;
  require(at_once > 0, ExitCode::internal,
          "attention_backward: {} heads of {} positions need more than {} bytes of work memory",
          shape.heads, shape.query_length, kWorkBytes);
  const TileShape s = tile_shape(shape, {call.q, call.k, call.v, call.d_output});
  float* delta = reinterpret_cast<float*>(work_memory(stream));
  with_type(call.q.dtype, "attention_backward", [&]<class T>() {
    BackwardTiles<T> a{read_rows<T>(call.q),
                       read_rows<T>(call.k),
                       read_rows<T>(call.v),
                       read_rows<T>(call.output),
                       read_rows<T>(call.d_output),
                       write_rows<T>(call.d_q),
                       write_rows<T>(call.d_k),
                       write_rows<T>(call.d_v),
                       elements<float>(call.log_sum_exp),
                       delta,
                       0};
    const BackwardFloats floats;
    with_tile(stream, shape.head_size, floats, [&]<int kD, int kTile>() {
      const size_t bytes = floats.template operator()<kD, kTile>() * sizeof(float);
      for (a.first_sequence = 0; a.first_sequence < shape.batch; a.first_sequence += at_once) {
        const int64_t sequences = std::min(at_once, shape.batch - a.first_sequence);
        launch<kD, kTile>(stream, shape, s, a, static_cast<unsigned>(sequences), bytes);
      }
    });
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
