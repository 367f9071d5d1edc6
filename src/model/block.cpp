#include "model/block.hpp"

#include <cmath>

namespace trireme {

Norm::Norm(const ModelShape& model, const ParameterStore& store, const std::string& name)
    : kind(model.layer_norm ? NormKind::layer_norm : NormKind::rms_norm),
      epsilon(model.norm_epsilon) {
  const ParameterTable& table = store.table();
  gain = store.value(table.find(name + ".gain"));
  d_gain = store.gradient(table.find(name + ".gain"));
  if (!table.contains(name + ".bias")) return;
  bias = store.value(table.find(name + ".bias"));
  d_bias = store.gradient(table.find(name + ".bias"));
}

void Norm::forward(Stream& stream, const PendingAdd& pending, TensorView residual,
                   TensorView normalized) const {
  const bool adds = !pending.residual.empty();
  norm_forward(stream, {.kind = kind,
                        .epsilon = epsilon,
                        .residual_in = adds ? pending.residual : residual,
                        .delta = pending.delta,
                        .delta_bias = pending.bias,
                        .residual_out = adds ? residual : TensorView{},
                        .gain = gain,
                        .bias = bias,
                        .normalized = normalized,
                        .dropout = pending.dropout});
}

void Norm::backward(Stream& stream, TensorView x, TensorView d_normalized,
                    TensorView d_residual) const {
  norm_backward(stream, {.kind = kind,
                         .epsilon = epsilon,
                         .x = x,
                         .gain = gain,
                         .d_normalized = d_normalized,
                         .d_residual = d_residual,
                         .d_gain = d_gain,
                         .d_bias = d_bias});
}

Block::Block(const ModelShape& model, const ChunkOptions& options, int64_t layer,
             const ParameterStore& store)
    : layer_(layer),
      sizes_(local_sizes(model, options)),
      options_(options),
      gated_(model.gated),
      rotary_(!model.learned_positions),
      dropout_(model.dropout),
      tp_(options, sizes_) {
  const std::string at = fmt::format("layers.{}.", layer);
  norm1_ = Norm(model, store, at + "norm1");
  norm2_ = Norm(model, store, at + "norm2");
  qkv_ = ColumnLinear(
      store,
      {at + "attention.query.weight", at + "attention.key.weight", at + "attention.value.weight"},
      model.has_qkv_bias(),
      model.qk_norm ? ColumnLinear::Outputs::one_by_one : ColumnLinear::Outputs::side_by_side);
  if (model.qk_norm) {
    query_norm_ = Norm(model, store, at + "attention.query_norm");
    key_norm_ = Norm(model, store, at + "attention.key_norm");
  }
  output_ = RowLinear(store, at + "attention.output.weight", model.has_output_bias());
  std::vector<std::string> up{at + "mlp.up.weight"};
  if (gated_) up.insert(up.begin(), at + "mlp.gate.weight");
  up_ = ColumnLinear(store, up, model.has_mlp_bias());
  down_ = RowLinear(store, at + "mlp.down.weight", model.has_mlp_bias());
}

DropoutSite Block::dropout_site(const LayerContext& c, const MicroBatch& batch, int kind) const {
  return {.probability = dropout_,
          .site = static_cast<uint32_t>(8 * layer_ + kind),
          .sample_offset = batch.sample_offset,
          .row_offset = tp_.row_offset(),
          .sequence = options_.batch.sequence,
          .state = c.state};
}

AttentionShape Block::attention_shape(const LayerContext& c, const MicroBatch& batch) const {
  AttentionShape shape;
  shape.batch = options_.batch.micro;
  shape.query_length = shape.key_length = options_.batch.sequence;
  shape.heads = sizes_.heads;
  shape.kv_heads = sizes_.kv_heads;
  shape.head_size = sizes_.head_size;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(sizes_.head_size));
  shape.first_head = options_.here.tp * sizes_.heads;
  shape.dropout = dropout_site(c, batch, 0);
  shape.dropout.row_offset = 0;
  shape.deterministic = options_.deterministic;
  shape.starts = batch.starts;
  shape.documents = batch.documents;
  shape.longest_document = batch.longest_document;
  return shape;
}

PendingAdd Block::forward(LayerContext& c, const MicroBatch& batch, const PendingAdd& pending,
                          LayerStash& s, Scratch& v, Purpose purpose) const {
  Stream& stream = c.device.compute();
  const TensorView normalized1 = s.normalized1.empty() ? v.normalized : s.normalized1;
  norm1_.forward(stream, pending, s.residual, normalized1);
  attention_forward_part(c, batch, normalized1, s, v);

  const PendingAdd attention{s.residual, v.delta, output_.bias(), dropout_site(c, batch, 1)};
  const TensorView normalized2 = s.normalized2.empty() ? v.normalized : s.normalized2;
  norm2_.forward(stream, attention, s.middle, normalized2);
  const TensorView activation = s.activation.empty() ? v.activation : s.activation;
  mlp_forward_part(c, normalized2, activation, s, v, purpose);
  return {s.middle, v.delta, down_.bias(), dropout_site(c, batch, 2)};
}

void Block::attention_forward_part(LayerContext& c, const MicroBatch& batch, TensorView normalized,
                                   LayerStash& s, Scratch& v) const {
  Stream& stream = c.device.compute();
  tp_.gather_product(
      c, normalized, v, TensorParallel::Leave::nothing,
      [&](const TensorView& x, int64_t first) { qkv_.forward(stream, x, s.qkv, first); });
  make_heads(c, batch, s, v);
  attend(c, batch, s, v);
  tp_.product_reduce(c, v.delta, v, [&](int64_t first, const TensorView& out) {
    output_.forward(stream, s.attention.rows(first, first + out.shape[0]), out);
  });
}

void Block::attend(LayerContext& c, const MicroBatch& batch, LayerStash& s,
                   const Scratch& v) const {
  const HeadViews h = heads(s, v);
  if (s.cache != nullptr) return attend_cached(c, batch, h, s);
  attention_forward(c.device.compute(), {.shape = attention_shape(c, batch),
                                         .q = h.q,
                                         .k = h.k,
                                         .v = h.v,
                                         .output = s.attention,
                                         .log_sum_exp = s.log_sum_exp});
}

void Block::mlp_forward_part(LayerContext& c, TensorView normalized, TensorView activation,
                             LayerStash& s, Scratch& v, Purpose purpose) const {
  Stream& stream = c.device.compute();
  const bool fused = !gated_ && up_.has_bias();
  tp_.gather_product(c, normalized, v, TensorParallel::Leave::nothing,
                     [&](const TensorView& x, int64_t first) {
                       if (fused) return up_.forward_gelu(stream, x, s.up, activation, first);
                       up_.forward(stream, x, s.up, first);
                     });
  if (gated_) {
    swiglu_forward(stream, s.up, activation);
  } else if (!fused) {
    gelu_forward(stream, s.up, activation);
  }
  if (purpose == Purpose::recompute) return;
  tp_.product_reduce(c, v.delta, v, [&](int64_t first, const TensorView& out) {
    down_.forward(stream, activation.rows(first, first + out.shape[0]), out);
  });
}

void Block::backward(LayerContext& c, const MicroBatch& batch, LayerStash& s, Scratch& v,
                     TensorView d_residual) const {
  mlp_backward(c, batch, s, v, d_residual);
  attention_backward_part(c, batch, s, v, d_residual);
}

TensorView Block::branch_gradient(LayerContext& c, const MicroBatch& batch, int kind, Scratch& v,
                                  TensorView d_residual) const {
  if (dropout_ == 0) return d_residual;
  dropout(c.device.compute(),
          {.x = d_residual, .out = v.d_branch, .site = dropout_site(c, batch, kind)});
  return v.d_branch;
}

void Block::mlp_backward(LayerContext& c, const MicroBatch& batch, LayerStash& s, Scratch& v,
                         TensorView d_residual) const {
  Stream& stream = c.device.compute();
  const TensorView d_branch = branch_gradient(c, batch, 2, v, d_residual);
  down_.backward_bias(stream, d_branch);
  TensorView activation = s.activation;
  if (activation.empty()) {
    activation = v.activation;
    if (gated_) {
      swiglu_forward(stream, s.up, activation);
    } else {
      gelu_forward(stream, s.up, activation);
    }
  }
  const TensorView d_out = row_backward_input(c, down_, d_branch, v.d_activation, v);
  down_.backward_weight(stream, activation, d_out);
  TensorView d_up = gated_ ? s.up : v.d_activation;
  if (gated_) {
    swiglu_backward(stream, s.up, v.d_activation, d_up);
  } else {
    gelu_backward(stream, s.up, v.d_activation, d_up);
  }
  TensorView normalized = s.normalized2;
  if (normalized.empty()) {
    normalized = v.normalized;
    norm2_.forward(stream, {}, s.middle, normalized);
  }
  column_backward(c, up_, normalized, d_up, v);
  norm2_.backward(stream, s.middle, v.d_normalized, d_residual);
}

void Block::attention_backward_part(LayerContext& c, const MicroBatch& batch, LayerStash& s,
                                    Scratch& v, TensorView d_residual) const {
  Stream& stream = c.device.compute();
  const TensorView d_branch = branch_gradient(c, batch, 1, v, d_residual);
  output_.backward_bias(stream, d_branch);
  const TensorView d_out = row_backward_input(c, output_, d_branch, v.d_attention, v);
  output_.backward_weight(stream, s.attention, d_out);
  if (sizes_.qk_norm && s.heads.empty()) make_heads(c, batch, s, v);
  const HeadViews h = heads(s, v), d = head_views(sizes_, v.d_qkv);
  attention_backward(stream, {.shape = attention_shape(c, batch),
                              .q = h.q,
                              .k = h.k,
                              .v = h.v,
                              .output = s.attention,
                              .d_output = v.d_attention,
                              .log_sum_exp = s.log_sum_exp,
                              .d_q = d.q,
                              .d_k = d.k,
                              .d_v = d.v});
  heads_backward(c, batch, s, v);
  TensorView normalized = s.normalized1;
  if (normalized.empty()) {
    normalized = v.normalized;
    norm1_.forward(stream, {}, s.residual, normalized);
  }
  column_backward(c, qkv_, normalized, v.d_qkv, v);
  norm1_.backward(stream, s.residual, v.d_normalized, d_residual);
}

TensorView Block::row_backward_input(LayerContext& c, const RowLinear& linear, TensorView d_branch,
                                     TensorView d_wide, Scratch& v) const {
  return tp_.gather_product(c, d_branch, v, TensorParallel::Leave::rows,
                            [&](const TensorView& d_out, int64_t first) {
                              linear.backward_input(c.device.compute(), d_out,
                                                    d_wide.rows(first, first + d_out.shape[0]));
                            });
}

void Block::column_backward(LayerContext& c, const ColumnLinear& linear, TensorView normalized,
                            Matrix d_wide, Scratch& v) const {
  Stream& stream = c.device.compute();
  const TensorView x = tp_.start_gather(c, normalized, v);
  linear.backward_input(stream, d_wide, tp_.partial(v.d_normalized, v));
  tp_.start_reduce(c, v.d_normalized, v);
  tp_.finish_gather(c);
  linear.backward_weight(stream, x, d_wide);
  tp_.finish_reduce(c);
}

}  // namespace trireme
