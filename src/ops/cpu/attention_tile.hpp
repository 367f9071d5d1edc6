// Tiles of attention: up to 64 queries by 64 keys of one head, in f32.
//
// Score tiles are kept transposed, [keys, queries]: the softmax then runs along vectors of queries
// without sums across a vector, a group of dropout words falls on four rows, and with the queries
// transposed once for all key tiles every product is of a form for which BLAS has its fastest
// kernels.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "ops/cpu/workspace.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

// f32 rows of one head, in place or in work memory.
struct HeadRows {
  const float* data = nullptr;
  int64_t stride = 0;
};

// The work memory of one thread, cut into tiles. D is the head size.
struct AttentionScratch {
  AttentionScratch(float* memory, int64_t head_size);

  float* q_turned;                       // [D, 64], times the scale
  float* d_turned;                       // [D, 64]
  float *q, *d_output, *output, *k, *v;  // [64, D], f32 copies of other storage
  float *d_q, *d_k, *d_v;                // [64, D]; d_q is the output of the forward pass
  float *scores, *slopes, *factors;      // [64, 64]
  float *row_max, *row_sum, *decay, *log_sum, *d_sum;  // [64]
};

// One tile of queries: where they sit and what they may see.
struct QueryTile {
  int64_t batch = 0, head = 0;
  int64_t first = 0;                // index in the sequence's query range
  int64_t count = 0;                // queries
  int64_t width = 0;                // count, rounded up to whole vectors: columns of the score tile
  int64_t position = 0;             // of the first query
  int64_t keys = 0;                 // no key from here on is seen by any of them
  int64_t first_key = 0;            // nor one before this, the start of a tile of keys
  const int32_t* starts = nullptr;  // first key position that each of them sees; null: all from 0

  // Whether keys [begin, end) hold one that a query may see.
  bool sees(int64_t begin, int64_t end) const { return begin < keys && end > first_key; }
};
QueryTile query_tile(const AttentionShape& shape, int64_t batch, int64_t head, int64_t index);
inline int64_t query_tiles(const AttentionShape& shape) {
  return ceil_div(shape.query_length, kAttentionTile);
}
inline int64_t key_tiles(const AttentionShape& shape) {
  return ceil_div(shape.key_length, kAttentionTile);
}

// Throws Error(internal) unless the shape is sound and `x` is [batch * length, heads * head size].
void check_attention(const AttentionShape& shape, DType type);
void check_heads(const Matrix& x, const AttentionShape& shape, int64_t length, int64_t heads,
                 DType type, const char* what);

template <class Storage>
typename Storage::Element* head_at(const Matrix& x, int64_t row, int64_t head, int64_t head_size) {
  return reinterpret_cast<typename Storage::Element*>(x.data) + row * x.stride + head * head_size;
}

// Rows [row, row + count) of a head in f32: in place where they are stored so, else copied to
// `copy`.
template <class Storage>
HeadRows head_rows(const Matrix& x, int64_t row, int64_t count, int64_t head, int64_t head_size,
                   float* copy);
// Always copied: rows that several products read are faster when they are dense.
template <class Storage>
HeadRows copied_rows(const Matrix& x, int64_t row, int64_t count, int64_t head, int64_t head_size,
                     float* copy);
// To rows of another matrix, rounded.
template <class Storage>
void store_rows(const float* from, int64_t count, int64_t head_size, const Matrix& to, int64_t row,
                int64_t head);

// turned [D, 64] = factor * rows [count, D] transposed; columns from count to width are zero.
void turn_rows(const HeadRows& rows, int64_t count, int64_t width, int64_t head_size, float factor,
               float* turned);

// Scores of keys that a query does not see become minus infinity.
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
void mask_scores(const QueryTile& tile, int64_t key_position, int64_t keys, float* scores);

// Dropout of probabilities.
class ProbabilityDropout {
 public:
  // Throws Error(internal) for a site that cannot be drawn.
  explicit ProbabilityDropout(const AttentionShape& shape);
  bool on() const { return on_; }
  // factors [keys, 64]: 0 or 1 / (1 - p) for each key from `key_position` on and each query.
  void draw(const QueryTile& tile, int64_t key_position, int64_t keys, float* factors) const;

 private:
  DropoutSite site_;
  int64_t first_head_ = 0;
  bool on_ = false;
};

}  // namespace trireme::inline TRIREME_BACKEND
