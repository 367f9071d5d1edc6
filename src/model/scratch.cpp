#include "model/scratch.hpp"

#include <algorithm>

#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

// The head works on pieces of the tokens so that its logits stay near this.
constexpr int64_t kLogitsBytes = int64_t{1} << 30;
// Rows of a piece are a multiple of this: what matrix products take in one go.
constexpr int64_t kPieceRows = 256;

// Pieces of about equal size.
int64_t head_piece(int64_t tokens, int64_t row_bytes) {
  const int64_t most = std::max<int64_t>(1, kLogitsBytes / std::max<int64_t>(1, row_bytes));
  const int64_t pieces = ceil_div(tokens, most);
  return std::min(tokens, round_up(ceil_div(tokens, pieces), kPieceRows));
}

}  // namespace

LocalSizes local_sizes(const ModelShape& model, const ChunkOptions& options) {
  const int64_t tp = options.grid.tp;
  LocalSizes s;
  s.tokens = options.batch.tokens();
  require(!options.sequence_parallel || s.tokens % tp == 0, ExitCode::bad_config,
          "sequence parallelism splits the {} tokens of a micro-batch (batch.micro {} x "
          "batch.sequence {}) over grid.tp = {}, which does not divide them",
          s.tokens, options.batch.micro, options.batch.sequence, tp);
  s.rows = options.sequence_parallel ? s.tokens / tp : s.tokens;
  s.hidden = model.hidden;
  s.heads = model.heads / tp;
  s.kv_heads = std::max<int64_t>(1, model.kv_heads / tp);
  s.head_size = model.head_size;
  s.ffn = model.ffn / tp;
  s.up_width = (model.gated ? 2 : 1) * s.ffn;
  s.vocab_rows = vocab_rows(model.vocab, options.grid.tp);
  s.compute = model.compute;
  s.qk_norm = model.qk_norm;
  const int64_t row_bytes = s.vocab_rows * static_cast<int64_t>(size_of(s.compute));
  s.head_rows = head_piece(s.tokens, row_bytes);
  return s;
}

LayerStash take_layer_stash(const LocalSizes& s, const BatchShape& batch, Recompute keep,
                            Arena& arena, std::string_view purpose) {
  LayerStash stash;
  if (keep == Recompute::full) return stash;
  auto take = [&](int64_t rows, int64_t width) {
    return arena.take({rows, width}, s.compute, purpose);
  };
  stash.qkv = take(s.tokens, s.qkv_width());
  stash.attention = take(s.tokens, s.query_width());
  stash.log_sum_exp = arena.take({batch.micro, s.heads, batch.sequence}, DType::f32, purpose);
  stash.middle = take(s.rows, s.hidden);
  stash.up = take(s.tokens, s.up_width);
  if (keep == Recompute::selective) return stash;
  stash.normalized1 = take(s.rows, s.hidden);
  stash.normalized2 = take(s.rows, s.hidden);
  stash.activation = take(s.tokens, s.ffn);
  if (s.qk_norm) stash.heads = take(s.tokens, s.query_width() + s.kv_width());
  return stash;
}

namespace {

void take_head_scratch(Scratch& v, const LocalSizes& s, Arena& arena) {
  v.logits = arena.take({s.head_rows, s.vocab_rows}, s.compute, "logits");
  v.row_max = arena.take({s.head_rows}, DType::f32, "scratch");
  v.sums = arena.take({2, s.head_rows}, DType::f32, "scratch");
  v.loss = arena.take({s.tokens}, DType::f32, "scratch");
  v.final_residual = arena.take({s.rows, s.hidden}, s.compute, "scratch");
}

}  // namespace

ChunkScratch::ChunkScratch(const ModelShape& model, const ChunkOptions& options, bool embeds,
                           bool has_head, Arena& arena)
    : views_(std::make_unique<Scratch>()) {
  const LocalSizes s = local_sizes(model, options);
  Scratch& v = *views_;
  const bool split = options.sequence_parallel && options.grid.tp > 1;
  auto take = [&](int64_t rows, int64_t width) {
    return arena.take({rows, width}, s.compute, "scratch");
  };
  v.delta = take(s.rows, s.hidden);
  v.d_normalized = take(s.rows, s.hidden);
  if (split) v.gathered = take(s.tokens, s.hidden);
  if (split) v.partial = take(s.tokens, s.hidden);
  if (model.dropout > 0) v.d_branch = take(s.rows, s.hidden);
  v.d_qkv = take(s.tokens, s.qkv_width());
  v.d_attention = take(s.tokens, s.query_width());
  v.d_activation = take(s.tokens, s.ffn);
  const bool all_layers_full = options.recompute == Recompute::full;
  if (options.recompute != Recompute::none || has_head) v.normalized = take(s.rows, s.hidden);
  if (options.recompute == Recompute::selective) {
    v.activation = take(s.tokens, s.ffn);
    if (s.qk_norm) v.heads = take(s.tokens, s.query_width() + s.kv_width());
  }
  if (all_layers_full)
    v.layer = take_layer_stash(s, options.batch, Recompute::none, arena, "scratch");
  if (has_head) take_head_scratch(v, s, arena);
  if (embeds) v.embedding_work = arena.take({2 * s.tokens}, DType::i32, "scratch");
  if (embeds && options.grid.tp > 1) v.embedded = take(s.tokens, s.hidden);
  if (model.learned_positions) return;
  frequencies_ = rope_frequencies(model);
  v.rope_frequencies = arena.take({model.head_size / 2}, DType::f32, "scratch");
}

void ChunkScratch::prepare(Stream& stream) {
  if (!frequencies_.empty())
    copy_to_device(stream, std::as_bytes(std::span(frequencies_)), views_->rope_frequencies);
}

ChunkScratch::~ChunkScratch() = default;

}  // namespace trireme
