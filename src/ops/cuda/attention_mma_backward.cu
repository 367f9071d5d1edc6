// Gradient of attention on the tensor cores without atomics: one kernel owns tiles of queries and
// walks their keys, another owns tiles of keys and walks the queries that see them. Probabilities
// are made again from log_sum_exp.
#include <cmath>

#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/attention_tiled.hpp"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

struct BackwardSides {
  StridedRows<const bf16> q, k, v, output, d_output;
  StridedRows<bf16> d_q, d_k, d_v;
  const float* log_sum_exp;
  float* delta;  // [sequences of a launch, H, Tq]: sum over d of output * d_output
  int64_t first_sequence;
};

// What the gradient of a score needs of its query.
struct QuerySide {
  float log_sum_exp, delta;  // log_sum_exp in units of log2
  int first_key;             // that it sees, in keys of the call
};

// Products of the block's rows of output and d_output, to shared memory and to work memory. Two
// threads for a row.
template <int kD>
__device__ void leave_deltas(const StridedRows<const bf16>& output, const bf16* d_outputs,
                             int64_t first, const TileShape& s, float* shared, float* delta) {
  const int row = static_cast<int>(threadIdx.x / 2), part = static_cast<int>(threadIdx.x % 2);
  const int64_t query = first + row;
  float sum = 0;
  if (query < s.query_length) {
    for (int column = 8 * part; column < s.head_size; column += 16) {
      float o[8], d[8];
      load<8>(output.data + query * output.stride + column, o);
      load<8>(d_outputs + row * kRowStride<kD> + column, d);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += o[j] * d[j];
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (part != 0) return;
  shared[row] = sum;
  if (query < s.query_length) delta[query] = sum;
}

// Owns a tile of queries of one head: d_q, and the row products. Rows of squares are queries.
template <int kD>
__global__ void __launch_bounds__(kMmaThreads) query_gradient_kernel(BackwardSides a, TileShape s) {
  extern __shared__ uint4 shared[];
  __shared__ float deltas[kSide];
  bf16* queries = reinterpret_cast<bf16*>(shared);
  bf16* d_outputs = queries + kTileElements<kD>;
  bf16* keys = d_outputs + kTileElements<kD>;
  bf16* values = keys + kTileElements<kD>;
  const Lane at;
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kSide;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t sequence = a.first_sequence + blockIdx.z;
  const auto k = head_rows(a.k, sequence, s.key_length, head / s.group, s.head_size);
  const auto v = head_rows(a.v, sequence, s.key_length, head / s.group, s.head_size);
  const ProbabilityMask mask = probability_mask(s, sequence, head);
  load_side<kD>(head_rows(a.q, sequence, s.query_length, head, s.head_size), first, s.query_length,
                s.head_size, queries);
  load_side<kD>(head_rows(a.d_output, sequence, s.query_length, head, s.head_size), first,
                s.query_length, s.head_size, d_outputs);
  __syncthreads();
  leave_deltas<kD>(head_rows(a.output, sequence, s.query_length, head, s.head_size), d_outputs,
                   first, s, deltas, a.delta + (blockIdx.z * s.heads + head) * s.query_length);
  __syncthreads();
  const int64_t own = first + 16 * at.warp + at.row;
  int64_t visible[2], seen[2];
  QuerySide query[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = own + 8 * half;
    const bool real = row < s.query_length;
    visible[half] = real ? s.visible(row) : 0;
    seen[half] = s.first_seen(sequence, row);
    query[half] = {
        real ? a.log_sum_exp[(sequence * s.heads + head) * s.query_length + row] * kLog2e : 0.0f,
        deltas[16 * at.warp + at.row + 8 * half], 0};
  }
  float d_query[kD / 8][4] = {};
  const int64_t last_key = s.visible(min(first + kSide, s.query_length) - 1);
  const int64_t first_key = s.first_seen(sequence, first) / kSide * kSide;
  for (int64_t key = first_key; key < last_key; key += kSide) {
    __syncthreads();
    load_side<kD>(k, key, s.key_length, s.head_size, keys);
    load_side<kD>(v, key, s.key_length, s.head_size, values);
    __syncthreads();
    Square p, d_p;
    multiply_sides<kD>(queries + 16 * at.warp * kRowStride<kD>, keys, p);
    multiply_sides<kD>(d_outputs + 16 * at.warp * kRowStride<kD>, values, d_p);
    if (mask.on) {
      const KeptBits kept =
          KeptBits::of_queries(mask, s.query_offset + first + 16 * at.warp, s.key_offset + key);
#pragma unroll
      for (int n = 0; n < kPieces; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) d_p[n][e] = kept(n, e) ? d_p[n][e] * mask.kept : 0.0f;
    }
    const int limit[2] = {within_side(visible[0] - key), within_side(visible[1] - key)};
    const int from[2] = {within_side(seen[0] - key), within_side(seen[1] - key)};
#pragma unroll
    for (int n = 0; n < kPieces; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const QuerySide& own_query = query[e / 2];
        const int place = 8 * n + at.column + e % 2;
        const bool is_seen = place >= from[e / 2] && place < limit[e / 2];
        const float probability =
            is_seen ? exp2f(p[n][e] * (s.scale * kLog2e) - own_query.log_sum_exp) : 0.0f;
        p[n][e] = probability * (d_p[n][e] - own_query.delta);
      }
    multiply_by_side<kD>(p, keys, d_query);
  }
  const float scale[2] = {s.scale, s.scale};
  store_side<kD>(d_query, scale, own, s.query_length, s.head_size,
                 head_rows(a.d_q, sequence, s.query_length, head, s.head_size));
}

// From scores and products of d_output with values: probabilities with their dropout, and the
// gradients of scores, for a tile of queries from `query` on. Rows of squares are keys.
__device__ inline void key_squares(const TileShape& s, const ProbabilityMask& mask, int64_t query,
                                   int64_t warp_key, const QuerySide* states, Square& p,
                                   Square& d_p) {
  const Lane at;
  // A key is seen from query `from` of the tile on.
  int from[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t key = warp_key + at.row + 8 * half;
    const int64_t place = key + s.key_offset - s.query_offset - query;
    from[half] = key < s.key_length ? within_side(place) : kSide;
  }
  const int end = within_side(s.query_length - query);
  const KeptBits kept =
      mask.on ? KeptBits::of_keys(mask, s.query_offset + query, s.key_offset + warp_key)
              : KeptBits::all();
#pragma unroll
  for (int n = 0; n < kPieces; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int place = 8 * n + at.column + e % 2;
      const QuerySide state = states[place];
      const bool seen =
          place >= from[e / 2] && place < end && warp_key + at.row + 8 * (e / 2) >= state.first_key;
      const float probability =
          seen ? exp2f(p[n][e] * (s.scale * kLog2e) - state.log_sum_exp) : 0.0f;
      const float factor = kept(n, e) ? mask.kept : 0.0f;
      d_p[n][e] = probability * (d_p[n][e] * factor - state.delta);
      p[n][e] = probability * factor;
    }
}

__device__ inline QuerySide query_side(const BackwardSides& a, const TileShape& s, int64_t sequence,
                                       int head, int64_t query) {
  if (query >= s.query_length) return {0, 0, 0};
  const int64_t at = (sequence * s.heads + head) * s.query_length + query;
  const int64_t piece = ((sequence - a.first_sequence) * s.heads + head) * s.query_length + query;
  return {a.log_sum_exp[at] * kLog2e, a.delta[piece],
          static_cast<int>(s.first_seen(sequence, query))};
}

// Owns a tile of keys of one key head: d_k and d_v.
template <int kD>
__global__ void __launch_bounds__(kMmaThreads) key_gradient_kernel(BackwardSides a, TileShape s) {
  extern __shared__ uint4 shared[];
  __shared__ QuerySide states[kSide];
  bf16* keys = reinterpret_cast<bf16*>(shared);
  bf16* values = keys + kTileElements<kD>;
  bf16* queries = values + kTileElements<kD>;
  bf16* d_outputs = queries + kTileElements<kD>;
  const Lane at;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSide;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int64_t sequence = a.first_sequence + blockIdx.z;
  load_side<kD>(head_rows(a.k, sequence, s.key_length, kv_head, s.head_size), first, s.key_length,
                s.head_size, keys);
  load_side<kD>(head_rows(a.v, sequence, s.key_length, kv_head, s.head_size), first, s.key_length,
                s.head_size, values);
  float d_key[kD / 8][4] = {}, d_value[kD / 8][4] = {};
  // The first query that sees the first key of the tile.
  const int64_t start = max(int64_t{0}, s.key_offset + first - s.query_offset) / kSide * kSide;
  for (int h = 0; h < s.group; ++h) {
    const int head = kv_head * s.group + h;
    const auto q = head_rows(a.q, sequence, s.query_length, head, s.head_size);
    const auto d_o = head_rows(a.d_output, sequence, s.query_length, head, s.head_size);
    const ProbabilityMask mask = probability_mask(s, sequence, head);
    for (int64_t query = start; query < s.query_length; query += kSide) {
      if (s.first_seen(sequence, query) >= first + kSide) break;  // as all later ones
      __syncthreads();
      load_side<kD>(q, query, s.query_length, s.head_size, queries);
      load_side<kD>(d_o, query, s.query_length, s.head_size, d_outputs);
      if (threadIdx.x < kSide)
        states[threadIdx.x] = query_side(a, s, sequence, head, query + threadIdx.x);
      __syncthreads();
      Square p, d_p;
      multiply_sides<kD>(keys + 16 * at.warp * kRowStride<kD>, queries, p);
      multiply_sides<kD>(values + 16 * at.warp * kRowStride<kD>, d_outputs, d_p);
      key_squares(s, mask, query, first + 16 * at.warp, states, p, d_p);
      multiply_by_side<kD>(p, d_outputs, d_value);
      multiply_by_side<kD>(d_p, queries, d_key);
    }
  }
  const float one[2] = {1, 1}, scale[2] = {s.scale, s.scale};
  const int64_t own = first + 16 * at.warp + at.row;
  store_side<kD>(d_value, one, own, s.key_length, s.head_size,
                 head_rows(a.d_v, sequence, s.key_length, kv_head, s.head_size));
  store_side<kD>(d_key, scale, own, s.key_length, s.head_size,
                 head_rows(a.d_k, sequence, s.key_length, kv_head, s.head_size));
}

// Sequences [a.first_sequence, + sequences) of one call.
template <int kD>
void launch(Stream& stream, const AttentionShape& shape, const TileShape& s, const BackwardSides& a,
            unsigned sequences) {
  const size_t bytes = 4 * kTileElements<kD> * sizeof(bf16);
  if (shape.query_length > 0) {
    const auto kernel = query_gradient_kernel<kD>;
    allow_shared_memory(kernel, bytes, "attention_backward: queries");
    const dim3 grid(blocks_for(shape.query_length, kSide), static_cast<unsigned>(shape.heads),
                    sequences);
    kernel<<<grid, kMmaThreads, bytes, native(stream)>>>(a, s);
    check_launch("attention_backward: queries");
  }
  if (shape.key_length == 0) return;
  const auto kernel = key_gradient_kernel<kD>;
  allow_shared_memory(kernel, bytes, "attention_backward: keys");
  const dim3 grid(blocks_for(shape.key_length, kSide), static_cast<unsigned>(shape.kv_heads),
                  sequences);
  kernel<<<grid, kMmaThreads, bytes, native(stream)>>>(a, s);
  check_launch("attention_backward: keys");
}

}  // namespace

bool mma_attention_backward(Stream& stream, const AttentionBackward& call) {
  const AttentionShape& shape = call.shape;
  const int64_t of_sequence = std::max<int64_t>(1, shape.heads * shape.query_length);
  const int64_t at_once = static_cast<int64_t>(kWorkBytes / sizeof(float)) / of_sequence;
  if (at_once == 0 || !suits_mma(shape, {call.q, call.k, call.v, call.output, call.d_output,
                                         call.d_q, call.d_k, call.d_v}))
    return false;
  const TileShape s = tile_shape(shape, {call.q, call.k, call.v, call.d_output});
  BackwardSides a{read_rows<bf16>(call.q),
                  read_rows<bf16>(call.k),
                  read_rows<bf16>(call.v),
                  read_rows<bf16>(call.output),
                  read_rows<bf16>(call.d_output),
                  write_rows<bf16>(call.d_q),
                  write_rows<bf16>(call.d_k),
                  write_rows<bf16>(call.d_v),
                  elements<float>(call.log_sum_exp),
                  reinterpret_cast<float*>(work_memory(stream)),
                  0};
  with_side(shape.head_size, [&]<int kD>() {
    for (a.first_sequence = 0; a.first_sequence < shape.batch; a.first_sequence += at_once) {
      const int64_t sequences = std::min(at_once, shape.batch - a.first_sequence);
      launch<kD>(stream, shape, s, a, static_cast<unsigned>(sequences));
    }
  });
  return true;
}

}  // namespace trireme::inline TRIREME_BACKEND
