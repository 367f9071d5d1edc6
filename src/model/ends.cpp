#include "model/ends.hpp"

#include <algorithm>

namespace trireme {

Embedding::Embedding(const ModelShape& model, const ChunkOptions& options,
                     const ParameterStore& store)
    : sizes_(local_sizes(model, options)),
      options_(options),
      layers_(model.layers),
      dropout_(model.dropout),
      tp_(options, sizes_) {
  const ParameterTable& table = store.table();
  const int tokens = table.find("embedding.tokens");
  first_row_ = table.entries()[static_cast<size_t>(tokens)].first_row;
  table_ = store.value(tokens);
  d_table_ = store.gradient(tokens);
  if (!model.learned_positions) return;
  positions_ = store.value(table.find("embedding.positions"));
  d_positions_ = store.gradient(table.find("embedding.positions"));
}

DropoutSite Embedding::dropout_site(const LayerContext& c, const MicroBatch& batch) const {
  return {.probability = dropout_,
          .site = static_cast<uint32_t>(8 * layers_),
          .sample_offset = batch.sample_offset,
          .row_offset = tp_.row_offset(),
          .sequence = options_.batch.sequence,
          .state = c.state};
}

void Embedding::forward(LayerContext& c, const MicroBatch& batch, TensorView out,
                        Scratch& v) const {
  Stream& stream = c.device.compute();
  EmbeddingForward call{.tokens = batch.tokens,
                        .positions = batch.positions,
                        .table = table_,
                        .position_table = positions_,
                        .out = out,
                        .first_row = first_row_,
                        .dropout = dropout_site(c, batch)};
  if (c.tp.size() == 1) {
    embedding_forward(stream, call);
    return;
  }
  // Each rank holds some rows of the table; one of them adds the positions; dropout follows the
  // sum.
  call.out = tp_.splits_rows() ? v.embedded : out;
  call.dropout = {};
  if (c.tp.rank() != 0) call.position_table = {};
  embedding_forward(stream, call);
  exposed(c, [&](Stream& compute) {
    if (tp_.splits_rows()) return c.tp.reduce_scatter(compute, v.embedded, out);
    c.tp.all_reduce(compute, out);
  });
  if (dropout_ > 0) dropout(stream, {.x = out, .out = out, .site = dropout_site(c, batch)});
}

void Embedding::backward(LayerContext& c, const MicroBatch& batch, TensorView d, Scratch& v) const {
  Stream& stream = c.device.compute();
  if (dropout_ > 0) dropout(stream, {.x = d, .out = d, .site = dropout_site(c, batch)});
  EmbeddingBackward call{.tokens = batch.tokens,
                         .positions = batch.positions,
                         .d_out = tp_.gather(c, d, v),
                         .d_table = d_table_,
                         .d_position_table = tp_.splits_rows() ? TensorView{} : d_positions_,
                         .workspace = v.embedding_work,
                         .first_row = first_row_};
  embedding_backward(stream, call);
  if (!tp_.splits_rows() || d_positions_.empty()) return;
  const int64_t first = tp_.row_offset(), last = first + sizes_.rows;
  embedding_backward(stream, {.tokens = batch.tokens.range(first, last),
                              .positions = batch.positions.range(first, last),
                              .d_out = d,
                              .d_table = {},
                              .d_position_table = d_positions_,
                              .workspace = v.embedding_work,
                              .first_row = first_row_});
}

Head::Head(const ModelShape& model, const ChunkOptions& options, const ParameterStore& store)
    : sizes_(local_sizes(model, options)),
      options_(options),
      tp_(options, sizes_),
      norm_(model, store, "final_norm") {
  const ParameterTable& table = store.table();
  const int entry = table.find(model.tied ? "embedding.tokens" : "head.weight");
  first_row_ = table.entries()[static_cast<size_t>(entry)].first_row;
  valid_ = table.entries()[static_cast<size_t>(entry)].rows;
  table_ = store.value(entry);
  d_table_ = store.gradient(entry);
}

void Head::run(LayerContext& c, Mode mode, const MicroBatch& batch, const PendingAdd& pending,
               TensorView d_residual, Scratch& v) const {
  Stream& stream = c.device.compute();
  norm_.forward(stream, pending, v.final_residual, v.normalized);
  const TensorView x = tp_.gather(c, v.normalized, v);
  const TensorView dx = tp_.partial(v.d_normalized, v);
  for (int64_t first = 0; first < sizes_.tokens; first += sizes_.head_rows)
    piece(c, mode, batch, x, dx, first, v);
  if (mode == Mode::evaluate) return;
  tp_.reduce(c, v.d_normalized, v);
  fill_zero(stream, d_residual);
  norm_.backward(stream, v.final_residual, v.d_normalized, d_residual);
}

void Head::logits(LayerContext& c, const PendingAdd& pending, int64_t first, TensorView out,
                  Scratch& v) const {
  Stream& stream = c.device.compute();
  norm_.forward(stream, pending, v.final_residual, v.normalized);
  gemm(stream, {.a = v.normalized.rows(first, v.normalized.shape[0]),
                .b = table_,
                .c = out,
                .transpose_b = true});
}

void Head::piece(LayerContext& c, Mode mode, const MicroBatch& batch, TensorView x, TensorView dx,
                 int64_t first, Scratch& v) const {
  Stream& stream = c.device.compute();
  const int64_t last = std::min(sizes_.tokens, first + sizes_.head_rows);
  const int64_t rows = last - first;
  const TensorView logits = v.logits.rows(0, rows);
  const TensorView x_rows = x.rows(first, last);
  gemm(stream, {.a = x_rows, .b = table_, .c = logits, .transpose_b = true});
  const CrossEntropy loss{.logits = logits,
                          .first_row = first_row_,
                          .valid = valid_,
                          .targets = batch.targets.range(first, last),
                          .mask = batch.mask.range(first, last),
                          .row_max = v.row_max.range(0, rows),
                          .sums = v.sums.range(0, 2 * rows).as({2, rows}),
                          .loss = (batch.losses.empty() ? v.loss : batch.losses).range(first, last),
                          .write_gradient = mode == Mode::train,
                          .count = options_.here.tp == 0,
                          .state = c.state};
  cross_entropy_max(stream, loss);
  exposed(c, [&](Stream& compute) { c.tp.all_reduce(compute, loss.row_max, Reduce::max); });
  cross_entropy_sums(stream, loss);
  exposed(c, [&](Stream& compute) { c.tp.all_reduce(compute, loss.sums); });
  cross_entropy_finish(stream, loss);
  if (mode == Mode::evaluate) return;
  gemm(stream, {.a = logits, .b = table_, .c = dx.rows(first, last)});
  gemm(stream, {.a = logits, .b = x_rows, .c = d_table_, .transpose_a = true, .beta = 1});
}

}  // namespace trireme
