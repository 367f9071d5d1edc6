// Causal attention, forward: tiles of keys pass by a tile of queries with a running softmax
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
// "FlashAttention", 2022). Work memory is a few tiles for each thread, whatever the length.
#include <omp.h>

#include <cmath>

#include "ops/cpu/attention_tile.hpp"
#include "ops/cpu/blas.hpp"
#include "ops/cpu/fast_math.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Takes in a tile of scores: new maxima, sums, and the factor by which what was summed before
// shrinks; the scores become probabilities relative to the new maxima.
void update_softmax(const AttentionScratch& s, int64_t width, int64_t keys) {
  alignas(64) float largest[kAttentionTile];
  std::copy_n(s.row_max, width, largest);
  for (int64_t r = 0; r < keys; ++r) {
    const float* row = s.scores + r * kAttentionTile;
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) largest[c] = row[c] > largest[c] ? row[c] : largest[c];
  }
  alignas(64) float shift[kAttentionTile];
  alignas(64) float sum[kAttentionTile] = {};
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    shift[c] =
        largest[c] == kMinusInfinity ? 0.0f : largest[c];  // a query that has seen no key yet
    s.decay[c] = fast_exp(s.row_max[c] - shift[c]);
    s.row_max[c] = largest[c];
  }
  for (int64_t r = 0; r < keys; ++r) {
    float* row = s.scores + r * kAttentionTile;
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      row[c] = fast_exp(row[c] - shift[c]);
      sum[c] += row[c];
    }
  }
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) s.row_sum[c] = s.row_sum[c] * s.decay[c] + sum[c];
}

void multiply(const float* factors, int64_t width, int64_t keys, float* scores) {
  for (int64_t r = 0; r < keys; ++r) {
#pragma omp simd
    for (int64_t c = 0; c < width; ++c)
      scores[r * kAttentionTile + c] *= factors[r * kAttentionTile + c];
  }
}

void scale_rows(const float* factors, int64_t rows, int64_t head_size, float* x) {
  for (int64_t r = 0; r < rows; ++r) {
    if (factors[r] == 1) continue;
#pragma omp simd
    for (int64_t i = 0; i < head_size; ++i) x[r * head_size + i] *= factors[r];
  }
}

// Divides by the sums and writes the tile's output and log-sum-exp. A query that sees no key gives
// 0 and minus infinity, which weigh nothing when results are merged.
template <class Storage>
void finish(const AttentionForward& call, const QueryTile& tile, const AttentionScratch& s) {
  const AttentionShape& shape = call.shape;
  float* log_sum_exp = call.log_sum_exp.ptr<float>() +
                       (tile.batch * shape.heads + tile.head) * shape.query_length + tile.first;
  for (int64_t c = 0; c < tile.count; ++c) {
    const bool none = s.row_max[c] == kMinusInfinity && s.row_sum[c] == 0;
    s.decay[c] = none ? 0.0f : 1.0f / s.row_sum[c];
    log_sum_exp[c] = none ? kMinusInfinity : s.row_max[c] + std::log(s.row_sum[c]);
  }
  scale_rows(s.decay, tile.count, shape.head_size, s.d_q);
  store_rows<Storage>(s.d_q, tile.count, shape.head_size, call.output,
                      tile.batch * shape.query_length + tile.first, tile.head);
}

template <class Storage>
void forward_tile(const AttentionForward& call, const ProbabilityDropout& dropout,
                  const QueryTile& tile, const AttentionScratch& s) {
  const AttentionShape& shape = call.shape;
  const int64_t size = shape.head_size;
  const int64_t kv_head = tile.head / (shape.heads / shape.kv_heads);
  const HeadRows q = head_rows<Storage>(call.q, tile.batch * shape.query_length + tile.first,
                                        tile.count, tile.head, size, s.q);
  turn_rows(q, tile.count, tile.width, size, shape.scale, s.q_turned);
  std::fill_n(s.row_max, tile.width, kMinusInfinity);
  std::fill_n(s.row_sum, tile.width, 0.0f);
  if (tile.first_key >= tile.keys) std::fill_n(s.d_q, tile.count * size, 0.0f);
  for (int64_t first = tile.first_key; first < tile.keys; first += kAttentionTile) {
    const int64_t keys = std::min(kAttentionTile, tile.keys - first);
    const int64_t row = tile.batch * shape.key_length + first;
    const HeadRows k = head_rows<Storage>(call.k, row, keys, kv_head, size, s.k);
    const HeadRows v = head_rows<Storage>(call.v, row, keys, kv_head, size, s.v);
    sgemm(Turn::no, Turn::no, keys, tile.width, size, k.data, k.stride, s.q_turned, kAttentionTile,
          0, s.scores, kAttentionTile);
    const int64_t key_position = shape.key_offset + first;
    mask_scores(tile, key_position, keys, s.scores);
    update_softmax(s, tile.width, keys);
    if (dropout.on()) {
      dropout.draw(tile, key_position, keys, s.factors);
      multiply(s.factors, tile.width, keys, s.scores);
    }
    if (first > tile.first_key) scale_rows(s.decay, tile.count, size, s.d_q);
    sgemm(Turn::yes, Turn::no, tile.count, size, keys, s.scores, kAttentionTile, v.data, v.stride,
          first > tile.first_key ? 1.0f : 0.0f, s.d_q, size);
  }
  finish<Storage>(call, tile, s);
}

void check(const AttentionForward& call) {
  const AttentionShape& shape = call.shape;
  const DType type = call.q.dtype;
  check_attention(shape, type);
  check_heads(call.q, shape, shape.query_length, shape.heads, type, "q");
  check_heads(call.k, shape, shape.key_length, shape.kv_heads, type, "k");
  check_heads(call.v, shape, shape.key_length, shape.kv_heads, type, "v");
  check_heads(call.output, shape, shape.query_length, shape.heads, type, "output");
  require_view(call.log_sum_exp, {shape.batch, shape.heads, shape.query_length}, DType::f32,
               "attention: log_sum_exp");
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForward& call) {
  check(call);
  const AttentionShape& shape = call.shape;
  const ProbabilityDropout dropout(shape);
  const Workspace workspace(stream);
  const int64_t tiles = query_tiles(shape);
  const int64_t heads = shape.batch * shape.heads;
  with_storage(call.q.dtype, "attention", [&](auto storage) {
  // Late tiles see the most keys: they are handed out first.
#pragma omp parallel for schedule(dynamic, 1) num_threads(workspace.threads())
    for (int64_t task = 0; task < tiles * heads; ++task) {
      const int64_t index = tiles - 1 - task / heads;
      const int64_t head = task % heads;
      const AttentionScratch scratch(workspace.of_thread(omp_get_thread_num()), shape.head_size);
      forward_tile<decltype(storage)>(
          call, dropout, query_tile(shape, head / shape.heads, head % shape.heads, index), scratch);
    }
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
