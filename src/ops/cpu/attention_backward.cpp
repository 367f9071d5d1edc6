// Causal attention, backward: probabilities are computed again from log-sum-exp, tile by tile.
//
// With P the probabilities, M the dropout factors, o the output and D = rowsum(d_o * o):
//   d_v = (P M)^T d_o,  dS = P (M (d_o v^T) - D) scale,  d_q = dS k,  d_k = dS^T q
// (Dao et al., "FlashAttention", 2022, appendix B). Every output element is summed by one thread in
// an order that depends on the shape only: deterministic, and the same for any number of threads.
#include <omp.h>

#include <cmath>

#include "ops/cpu/attention_tile.hpp"
#include "ops/cpu/blas.hpp"
#include "ops/cpu/fast_math.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// What a tile of queries brings to every tile of keys.
struct QueryRows {
  HeadRows q, d_output;
};

template <class Storage>
QueryRows load_queries(const AttentionBackward& call, const QueryTile& tile,
                       const AttentionScratch& s) {
  const AttentionShape& shape = call.shape;
  const int64_t size = shape.head_size;
  const int64_t row = tile.batch * shape.query_length + tile.first;
  const auto rows = [&](const Matrix& x, float* copy) {
    return copied_rows<Storage>(x, row, tile.count, tile.head, size, copy);
  };
  const QueryRows loaded{rows(call.q, s.q), rows(call.d_output, s.d_output)};
  const HeadRows output = rows(call.output, s.output);
  turn_rows(loaded.q, tile.count, tile.width, size, shape.scale, s.q_turned);
  turn_rows(loaded.d_output, tile.count, tile.width, size, 1, s.d_turned);
  const float* log_sum_exp = call.log_sum_exp.ptr<float>() +
                             (tile.batch * shape.heads + tile.head) * shape.query_length +
                             tile.first;
  std::fill_n(s.log_sum, tile.width, 0.0f);
  std::fill_n(s.d_sum, tile.width, 0.0f);
  for (int64_t c = 0; c < tile.count; ++c) {
    const float* a = output.data + c * output.stride;
    const float* b = loaded.d_output.data + c * loaded.d_output.stride;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
    s.d_sum[c] = sum;
    s.log_sum[c] = std::isinf(log_sum_exp[c]) ? 0.0f : log_sum_exp[c];  // sees no key: all masked
  }
  return loaded;
}

// One row (key) of a tile: scores become dropped probabilities P M, slopes (d_o v^T) become dS.
template <bool kDropout>
void slope_row(const AttentionScratch& s, int64_t row, int64_t width, float scale) {
  float* __restrict score = s.scores + row * kAttentionTile;
  float* __restrict slope = s.slopes + row * kAttentionTile;
  const float* __restrict factor = s.factors + row * kAttentionTile;
  const float* __restrict log_sum = s.log_sum;
  const float* __restrict d_sum = s.d_sum;
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    const float p = fast_exp(score[c] - log_sum[c]);
    const float m = kDropout ? factor[c] : 1.0f;
    slope[c] = p * (m * slope[c] - d_sum[c]) * scale;
    score[c] = p * m;
  }
}

// One tile of keys of a backward pass.
struct KeyRows {
  int64_t first = 0, count = 0;
  HeadRows k, v;
};

template <class Storage>
KeyRows load_keys(const AttentionBackward& call, int64_t batch, int64_t kv_head, int64_t first,
                  int64_t count, const AttentionScratch& s) {
  const int64_t row = batch * call.shape.key_length + first;
  const int64_t size = call.shape.head_size;
  return {first, count, copied_rows<Storage>(call.k, row, count, kv_head, size, s.k),
          copied_rows<Storage>(call.v, row, count, kv_head, size, s.v)};
}

// Leaves P M in s.scores and dS in s.slopes, both [keys, queries].
void slopes(const AttentionShape& shape, const ProbabilityDropout& dropout, const QueryTile& tile,
            const KeyRows& keys, const AttentionScratch& s) {
  sgemm(Turn::no, Turn::no, keys.count, tile.width, shape.head_size, keys.k.data, keys.k.stride,
        s.q_turned, kAttentionTile, 0, s.scores, kAttentionTile);
  sgemm(Turn::no, Turn::no, keys.count, tile.width, shape.head_size, keys.v.data, keys.v.stride,
        s.d_turned, kAttentionTile, 0, s.slopes, kAttentionTile);
  const int64_t position = shape.key_offset + keys.first;
  mask_scores(tile, position, keys.count, s.scores);
  if (dropout.on()) dropout.draw(tile, position, keys.count, s.factors);
  for (int64_t r = 0; r < keys.count; ++r) {
    if (dropout.on()) {
      slope_row<true>(s, r, tile.width, shape.scale);
    } else {
      slope_row<false>(s, r, tile.width, shape.scale);
    }
  }
}

void add_d_q(const QueryTile& tile, const KeyRows& keys, int64_t size, const AttentionScratch& s) {
  sgemm(Turn::yes, Turn::no, tile.count, size, keys.count, s.slopes, kAttentionTile, keys.k.data,
        keys.k.stride, 1, s.d_q, size);
}

void add_d_kv(const QueryTile& tile, const QueryRows& queries, int64_t keys, int64_t size,
              const AttentionScratch& s, float* d_k, int64_t k_stride, float* d_v,
              int64_t v_stride) {
  sgemm(Turn::no, Turn::no, keys, size, tile.count, s.scores, kAttentionTile, queries.d_output.data,
        queries.d_output.stride, 1, d_v, v_stride);
  sgemm(Turn::no, Turn::no, keys, size, tile.count, s.slopes, kAttentionTile, queries.q.data,
        queries.q.stride, 1, d_k, k_stride);
}

// d_q of one tile of queries.
template <class Storage>
void query_pass(const AttentionBackward& call, const ProbabilityDropout& dropout,
                const QueryTile& tile, const AttentionScratch& s) {
  const AttentionShape& shape = call.shape;
  const int64_t kv_head = tile.head / (shape.heads / shape.kv_heads);
  load_queries<Storage>(call, tile, s);
  std::fill_n(s.d_q, tile.count * shape.head_size, 0.0f);
  for (int64_t first = tile.first_key; first < tile.keys; first += kAttentionTile) {
    const KeyRows keys = load_keys<Storage>(call, tile.batch, kv_head, first,
                                            std::min(kAttentionTile, tile.keys - first), s);
    slopes(shape, dropout, tile, keys, s);
    add_d_q(tile, keys, shape.head_size, s);
  }
  store_rows<Storage>(s.d_q, tile.count, shape.head_size, call.d_q,
                      tile.batch * shape.query_length + tile.first, tile.head);
}

// d_k and d_v of one tile of keys: the sum over the query heads of the group and their queries.
template <class Storage>
void key_pass(const AttentionBackward& call, const ProbabilityDropout& dropout, int64_t batch,
              int64_t kv_head, int64_t index, const AttentionScratch& s) {
  const AttentionShape& shape = call.shape;
  const int64_t size = shape.head_size;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t first = index * kAttentionTile;
  const int64_t count = std::min(kAttentionTile, shape.key_length - first);
  const KeyRows keys = load_keys<Storage>(call, batch, kv_head, first, count, s);
  std::fill_n(s.d_k, count * size, 0.0f);
  std::fill_n(s.d_v, count * size, 0.0f);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int64_t i = 0; i < query_tiles(shape); ++i) {
      const QueryTile tile = query_tile(shape, batch, head, i);
      if (!tile.sees(first, first + count)) continue;
      const QueryRows queries = load_queries<Storage>(call, tile, s);
      KeyRows seen = keys;
      seen.count = std::min(count, tile.keys - first);
      slopes(shape, dropout, tile, seen, s);
      add_d_kv(tile, queries, seen.count, size, s, s.d_k, size, s.d_v, size);
    }
  }
  const int64_t row = batch * shape.key_length + first;
  store_rows<Storage>(s.d_k, count, size, call.d_k, row, kv_head);
  store_rows<Storage>(s.d_v, count, size, call.d_v, row, kv_head);
}

void zero_head(const Matrix& x, int64_t row, int64_t rows, int64_t head, int64_t size) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(head_at<F32>(x, row + r, head, size), size, 0.0f);
}

// All gradients of one key head in one walk: f32 only, where d_k and d_v are summed in place. The
// sums run in the order of the two passes, so that the results are the same.
void head_pass(const AttentionBackward& call, const ProbabilityDropout& dropout, int64_t batch,
               int64_t kv_head, const AttentionScratch& s) {
  const AttentionShape& shape = call.shape;
  const int64_t size = shape.head_size;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t key_row = batch * shape.key_length;
  zero_head(call.d_k, key_row, shape.key_length, kv_head, size);
  zero_head(call.d_v, key_row, shape.key_length, kv_head, size);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int64_t i = 0; i < query_tiles(shape); ++i) {
      const QueryTile tile = query_tile(shape, batch, head, i);
      const QueryRows queries = load_queries<F32>(call, tile, s);
      std::fill_n(s.d_q, tile.count * size, 0.0f);
      for (int64_t first = tile.first_key; first < tile.keys; first += kAttentionTile) {
        const int64_t count = std::min(kAttentionTile, tile.keys - first);
        const KeyRows keys = load_keys<F32>(call, batch, kv_head, first, count, s);
        slopes(shape, dropout, tile, keys, s);
        add_d_q(tile, keys, size, s);
        add_d_kv(tile, queries, count, size, s,
                 head_at<F32>(call.d_k, key_row + first, kv_head, size), call.d_k.stride,
                 head_at<F32>(call.d_v, key_row + first, kv_head, size), call.d_v.stride);
      }
      store_rows<F32>(s.d_q, tile.count, size, call.d_q, batch * shape.query_length + tile.first,
                      head);
    }
  }
}

void one_pass(const AttentionBackward& call, const ProbabilityDropout& dropout,
              const Workspace& workspace) {
  const AttentionShape& shape = call.shape;
#pragma omp parallel for schedule(dynamic, 1) num_threads(workspace.threads())
  for (int64_t task = 0; task < shape.batch * shape.kv_heads; ++task) {
    const AttentionScratch scratch(workspace.of_thread(omp_get_thread_num()), shape.head_size);
    head_pass(call, dropout, task / shape.kv_heads, task % shape.kv_heads, scratch);
  }
}

// Tiles with the most work are handed out first: the last queries, the first keys.
template <class Storage>
void two_passes(const AttentionBackward& call, const ProbabilityDropout& dropout,
                const Workspace& workspace) {
  const AttentionShape& shape = call.shape;
  const int64_t query_heads = shape.batch * shape.heads;
  const int64_t key_heads = shape.batch * shape.kv_heads;
  const int64_t last = query_tiles(shape) - 1;
#pragma omp parallel num_threads(workspace.threads())
  {
    const AttentionScratch scratch(workspace.of_thread(omp_get_thread_num()), shape.head_size);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t task = 0; task < key_heads * key_tiles(shape); ++task) {
      const int64_t head = task % key_heads;
      key_pass<Storage>(call, dropout, head / shape.kv_heads, head % shape.kv_heads,
                        task / key_heads, scratch);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < query_heads * (last + 1); ++task) {
      const int64_t head = task % query_heads;
      query_pass<Storage>(
          call, dropout,
          query_tile(shape, head / shape.heads, head % shape.heads, last - task / query_heads),
          scratch);
    }
  }
}

// One walk makes 5 products a tile, two passes 7; one walk has fewer pieces to share among threads.
bool one_pass_is_faster(const AttentionShape& shape, int threads) {
  const int64_t pieces = shape.batch * shape.kv_heads;
  return 5 * round_up(pieces, threads) <= 7 * pieces;
}

void check(const AttentionBackward& call) {
  const AttentionShape& shape = call.shape;
  const DType type = call.q.dtype;
  check_attention(shape, type);
  check_heads(call.q, shape, shape.query_length, shape.heads, type, "q");
  check_heads(call.output, shape, shape.query_length, shape.heads, type, "output");
  check_heads(call.d_output, shape, shape.query_length, shape.heads, type, "d_output");
  check_heads(call.d_q, shape, shape.query_length, shape.heads, type, "d_q");
  check_heads(call.k, shape, shape.key_length, shape.kv_heads, type, "k");
  check_heads(call.v, shape, shape.key_length, shape.kv_heads, type, "v");
  check_heads(call.d_k, shape, shape.key_length, shape.kv_heads, type, "d_k");
  check_heads(call.d_v, shape, shape.key_length, shape.kv_heads, type, "d_v");
  require_view(call.log_sum_exp, {shape.batch, shape.heads, shape.query_length}, DType::f32,
               "attention: log_sum_exp");
}

}  // namespace

void attention_backward(Stream& stream, const AttentionBackward& call) {
  check(call);
  const ProbabilityDropout dropout(call.shape);
  const Workspace workspace(stream);
  if (call.q.dtype == DType::bf16) return two_passes<Bf16>(call, dropout, workspace);
  if (one_pass_is_faster(call.shape, workspace.threads()))
    return one_pass(call, dropout, workspace);
  two_passes<F32>(call, dropout, workspace);
}

}  // namespace trireme::inline TRIREME_BACKEND
