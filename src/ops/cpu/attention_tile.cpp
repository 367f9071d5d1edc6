// Loads, transposes and masks of attention tiles.
#include "ops/cpu/attention_tile.hpp"

#include "trireme/ops/dropout_mask.hpp"

namespace trireme::inline TRIREME_BACKEND {

AttentionScratch::AttentionScratch(float* memory, int64_t head_size) {
  const auto cut = [&memory](int64_t count) {
    float* piece = memory;
    memory += count;
    return piece;
  };
  const int64_t rows = kAttentionTile * head_size;
  for (float** tile : {&q_turned, &d_turned, &q, &d_output, &output, &k, &v, &d_q, &d_k, &d_v})
    *tile = cut(rows);
  for (float** tile : {&scores, &slopes, &factors}) *tile = cut(kAttentionTile * kAttentionTile);
  for (float** vector : {&row_max, &row_sum, &decay, &log_sum, &d_sum})
    *vector = cut(kAttentionTile);
}

QueryTile query_tile(const AttentionShape& shape, int64_t batch, int64_t head, int64_t index) {
  constexpr int64_t kVector = 16;
  QueryTile tile;
  tile.batch = batch;
  tile.head = head;
  tile.first = index * kAttentionTile;
  tile.count = std::min(kAttentionTile, shape.query_length - tile.first);
  tile.width = round_up(tile.count, kVector);
  tile.position = shape.query_offset + tile.first;
  const int64_t last = tile.position + tile.count - 1;
  tile.keys = std::clamp<int64_t>(last - shape.key_offset + 1, 0, shape.key_length);
  if (shape.starts.empty()) return tile;
  tile.starts = shape.starts.ptr<int32_t>() + batch * shape.query_length + tile.first;
  const int64_t seen = std::clamp<int64_t>(tile.starts[0] - shape.key_offset, 0, tile.keys);
  tile.first_key = seen / kAttentionTile * kAttentionTile;
  return tile;
}

namespace {

void check_starts(const AttentionShape& shape) {
  require_view(shape.starts, {shape.batch * shape.query_length}, DType::i32, "attention: starts");
  const std::span<const int32_t> starts = shape.starts.host<int32_t>();
  int64_t documents = 0, longest = 0;
  for (size_t row = 0; row < starts.size(); ++row) {
    const int64_t query = static_cast<int64_t>(row) % shape.query_length;
    const int64_t position = shape.query_offset + query;
    const int32_t before = query == 0 ? 0 : starts[row - 1];
    require(starts[row] >= before && starts[row] <= position, ExitCode::internal,
            "attention: row {}, position {}: sees keys from {} on, the row before from {}", row,
            position, starts[row], before);
    const bool begins = starts[row] == position;
    if (begins) ++documents;
    longest = std::max(longest, position + 1 - starts[row]);
    require(shape.documents == 0 || begins || (query > 0 && starts[row] == before),
            ExitCode::internal, "attention: row {} belongs to no document that begins in it", row);
  }
  require(
      shape.documents == 0 || (shape.documents == documents && shape.longest_document == longest),
      ExitCode::internal, "attention: {} documents of up to {} tokens, {} of up to {} begin",
      shape.documents, shape.longest_document, documents, longest);
}

}  // namespace

void check_attention(const AttentionShape& shape, DType type) {
  require(shape.head_size > 0 && shape.head_size <= kLargestHead, ExitCode::internal,
          "attention: head size {}; the CPU takes 1 to {}", shape.head_size, kLargestHead);
  require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, ExitCode::internal,
          "attention: {} query heads over {} key heads", shape.heads, shape.kv_heads);
  require(shape.batch >= 0 && shape.query_length >= 0 && shape.key_length >= 0 &&
              shape.query_offset >= 0 && shape.key_offset >= 0,
          ExitCode::internal, "attention: batch {}, queries {} from {}, keys {} from {}",
          shape.batch, shape.query_length, shape.query_offset, shape.key_length, shape.key_offset);
  require(type == DType::f32 || type == DType::bf16, ExitCode::internal,
          "attention: element type {}; use f32 or bf16", name_of(type));
  if (!shape.starts.empty()) check_starts(shape);
}

void check_heads(const Matrix& x, const AttentionShape& shape, int64_t length, int64_t heads,
                 DType type, const char* what) {
  require(x.rows == shape.batch * length && x.cols == heads * shape.head_size && x.dtype == type,
          ExitCode::internal, "attention: {} is {} [{}, {}], expected {} [{}, {}]", what,
          name_of(x.dtype), x.rows, x.cols, name_of(type), shape.batch * length,
          heads * shape.head_size);
}

template <class Storage>
HeadRows copied_rows(const Matrix& x, int64_t row, int64_t count, int64_t head, int64_t head_size,
                     float* copy) {
  for (int64_t r = 0; r < count; ++r) {
    const auto* from = head_at<Storage>(x, row + r, head, head_size);
    float* to = copy + r * head_size;
#pragma omp simd
    for (int64_t i = 0; i < head_size; ++i) to[i] = Storage::load(from[i]);
  }
  return {copy, head_size};
}
template HeadRows copied_rows<F32>(const Matrix&, int64_t, int64_t, int64_t, int64_t, float*);
template HeadRows copied_rows<Bf16>(const Matrix&, int64_t, int64_t, int64_t, int64_t, float*);

template <>
HeadRows head_rows<F32>(const Matrix& x, int64_t row, int64_t, int64_t head, int64_t head_size,
                        float*) {
  return {head_at<F32>(x, row, head, head_size), x.stride};
}

template <>
HeadRows head_rows<Bf16>(const Matrix& x, int64_t row, int64_t count, int64_t head,
                         int64_t head_size, float* copy) {
  return copied_rows<Bf16>(x, row, count, head, head_size, copy);
}

template <class Storage>
void store_rows(const float* from, int64_t count, int64_t head_size, const Matrix& to, int64_t row,
                int64_t head) {
  for (int64_t r = 0; r < count; ++r) {
    const float* x = from + r * head_size;
    auto* y = head_at<Storage>(to, row + r, head, head_size);
#pragma omp simd
    for (int64_t i = 0; i < head_size; ++i) y[i] = Storage::store(x[i]);
  }
}
template void store_rows<F32>(const float*, int64_t, int64_t, const Matrix&, int64_t, int64_t);
template void store_rows<Bf16>(const float*, int64_t, int64_t, const Matrix&, int64_t, int64_t);

void turn_rows(const HeadRows& rows, int64_t count, int64_t width, int64_t head_size, float factor,
               float* turned) {
  constexpr int64_t kStrip = 16;  // rows that are read side by side
  for (int64_t c = 0; c < width; c += kStrip) {
    const int64_t present = std::clamp<int64_t>(count - c, 0, kStrip);
    const float* from = rows.data + c * rows.stride;
    for (int64_t i = 0; i < head_size; ++i) {
      float* to = turned + i * kAttentionTile + c;
      for (int64_t r = 0; r < present; ++r) to[r] = factor * from[r * rows.stride + i];
      for (int64_t r = present; r < kStrip; ++r) to[r] = 0;
    }
  }
}

void mask_scores(const QueryTile& tile, int64_t key_position, int64_t keys, float* scores) {
  for (int64_t r = 0; r < keys; ++r) {
    const int64_t first_seeing = key_position + r - tile.position;
    if (first_seeing > 0)
      std::fill_n(scores + r * kAttentionTile, std::min(first_seeing, tile.width), kMinusInfinity);
  }
  if (tile.starts == nullptr || tile.starts[tile.count - 1] <= key_position) return;
  // Queries from `behind` on begin after the key: starts never fall.
  int64_t behind = 0;
  for (int64_t r = 0; r < keys; ++r) {
    while (behind < tile.count && tile.starts[behind] <= key_position + r) ++behind;
    std::fill(scores + r * kAttentionTile + behind, scores + r * kAttentionTile + tile.width,
              kMinusInfinity);
  }
}

ProbabilityDropout::ProbabilityDropout(const AttentionShape& shape)
    : site_(shape.dropout), first_head_(shape.first_head) {
  require(site_.probability >= 0 && site_.probability < 1, ExitCode::internal,
          "attention dropout, site {}: probability {} is not in [0, 1)", site_.site,
          site_.probability);
  if (site_.probability == 0) return;
  require(site_.state != nullptr, ExitCode::internal,
          "attention dropout, site {}: needs the step state", site_.site);
  on_ = site_.state->training != 0;
}

void ProbabilityDropout::draw(const QueryTile& tile, int64_t key_position, int64_t keys,
                              float* factors) const {
  const StepState& state = *site_.state;
  const auto head = static_cast<uint32_t>(first_head_ + tile.head);
  const uint64_t key = dropout_key(state.seed, state.step, site_.site, head);
  const int64_t sample = state.first_sample + site_.sample_offset + tile.batch;
  const uint32_t threshold = dropout_threshold(site_.probability);
  const float kept = 1.0f / (1.0f - site_.probability);
  const auto position = static_cast<uint32_t>(tile.position);
  alignas(64) float unused[kAttentionTile];
  for (int64_t group = key_position / 4; 4 * group < key_position + keys; ++group) {
    float* rows[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t row = 4 * group + i - key_position;
      rows[i] = row >= 0 && row < keys ? factors + row * kAttentionTile : unused;
    }
    const auto address = static_cast<uint32_t>(group);
#pragma omp simd
    for (int64_t c = 0; c < tile.width; ++c) {
      const PhiloxWords w =
          dropout_words(key, address, position + static_cast<uint32_t>(c), sample);
      rows[0][c] = w.x < threshold ? 0.0f : kept;
      rows[1][c] = w.y < threshold ? 0.0f : kept;
      rows[2][c] = w.z < threshold ? 0.0f : kept;
      rows[3][c] = w.w < threshold ? 0.0f : kept;
    }
  }
}

}  // namespace trireme::inline TRIREME_BACKEND
