#include "trireme/model/decoder.hpp"

#include <optional>

#include "model/ends.hpp"

namespace trireme {
namespace {

ModelShape without_dropout(ModelShape model) {
  model.dropout = 0;
  return model;
}

ChunkOptions chunk_options(const DecoderOptions& options) {
  ChunkOptions result;
  result.batch = {1, options.rows};
  result.grid = options.grid;
  result.here = options.here;
  return result;
}

// The first n rows of what is there.
TensorView cut(const TensorView& view, int64_t n) {
  return view.empty() ? view : view.rows(0, n);
}

}  // namespace

struct Decoder::Impl {
  Impl(const ModelShape& model_shape, const DecoderOptions& decoder_options, LayerRange layers,
       bool embeds, bool has_head, const ParameterStore& parameters);
  void take(Arena& arena, bool has_head);
  LayerStash stash_of(int64_t n) const;
  Scratch scratch_of(int64_t n) const;

  ModelShape model;
  DecoderOptions options;
  ChunkOptions chunk;
  LocalSizes sizes;
  std::vector<Block> blocks;
  std::optional<Embedding> embedding;
  std::optional<Head> head;
  std::vector<float> frequencies;
  LayerStash stash;  // shared by the layers
  Scratch scratch;
  std::vector<TensorView> caches;  // by layer
  TensorView output, logits;
};

Decoder::Impl::Impl(const ModelShape& model_shape, const DecoderOptions& decoder_options,
                    LayerRange layers, bool embeds, bool has_head, const ParameterStore& parameters)
    : model(without_dropout(model_shape)),
      options(decoder_options),
      chunk(chunk_options(decoder_options)),
      sizes(local_sizes(model, chunk)) {
  for (int64_t layer = layers.first; layer < layers.last; ++layer)
    blocks.emplace_back(model, chunk, layer, parameters);
  if (embeds) embedding.emplace(model, chunk, parameters);
  if (has_head) head.emplace(model, chunk, parameters);
}

void Decoder::Impl::take(Arena& arena, bool has_head) {
  const auto rows = [&](int64_t width) {
    return arena.take({options.rows, width}, sizes.compute, "work memory");
  };
  stash = take_layer_stash(sizes, chunk.batch, Recompute::none, arena, "work memory");
  stash.residual = rows(sizes.hidden);
  scratch.delta = rows(sizes.hidden);
  scratch.normalized = rows(sizes.hidden);
  output = rows(sizes.hidden);
  for (size_t layer = 0; layer < blocks.size(); ++layer)
    caches.push_back(arena.take({options.sequences * options.capacity, 2 * sizes.kv_width()},
                                sizes.compute, "keys and values"));
  if (has_head)
    logits = arena.take({std::min(options.rows, options.sequences), sizes.vocab_rows}, DType::f32,
                        "logits");
  if (model.learned_positions) return;
  frequencies = rope_frequencies(model);
  scratch.rope_frequencies = arena.take({model.head_size / 2}, DType::f32, "work memory");
}

LayerStash Decoder::Impl::stash_of(int64_t n) const {
  LayerStash s;
  s.residual = cut(stash.residual, n);
  s.normalized1 = cut(stash.normalized1, n);
  s.qkv = cut(stash.qkv, n);
  s.heads = cut(stash.heads, n);
  s.attention = cut(stash.attention, n);
  s.log_sum_exp = stash.log_sum_exp.range(0, sizes.heads * n).as({1, sizes.heads, n});
  s.middle = cut(stash.middle, n);
  s.normalized2 = cut(stash.normalized2, n);
  s.up = cut(stash.up, n);
  s.activation = cut(stash.activation, n);
  return s;
}

Scratch Decoder::Impl::scratch_of(int64_t n) const {
  Scratch v;
  v.delta = cut(scratch.delta, n);
  v.normalized = cut(scratch.normalized, n);
  v.rope_frequencies = scratch.rope_frequencies;
  v.final_residual = cut(output, n);
  return v;
}

Decoder::Decoder(const ModelShape& model, const DecoderOptions& options, LayerRange layers,
                 bool embeds, bool has_head, const ParameterStore& parameters, Arena& arena)
    : impl_(std::make_unique<Impl>(model, options, layers, embeds, has_head, parameters)) {
  impl_->take(arena, has_head);
}

Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;

void Decoder::prepare(Stream& stream) {
  if (!impl_->frequencies.empty())
    copy_to_device(stream, std::as_bytes(std::span(impl_->frequencies)),
                   impl_->scratch.rope_frequencies);
}

TensorView Decoder::input(int64_t n) const {
  return cut(impl_->stash.residual, n);
}

TensorView Decoder::forward(LayerContext& c, const DecodeBatch& batch) {
  Impl& m = *impl_;
  const int64_t n = batch.rows.elements();
  require(n > 0 && n <= m.options.rows, ExitCode::internal, "{} tokens in a decoder for {}", n,
          m.options.rows);
  MicroBatch micro;
  micro.tokens = batch.tokens;
  micro.positions = batch.positions;
  LayerStash stash = m.stash_of(n);
  Scratch scratch = m.scratch_of(n);
  if (m.embedding) m.embedding->forward(c, micro, stash.residual, scratch);
  LayerCache cache{{}, batch.rows, m.options.capacity, batch.sequence, batch.first};
  stash.cache = &cache;
  PendingAdd pending;
  for (size_t layer = 0; layer < m.blocks.size(); ++layer) {
    cache.memory = m.caches[layer];
    pending = m.blocks[layer].forward(c, micro, pending, stash, scratch);
  }
  if (m.head) {
    const int64_t wanted = batch.first < 0 ? n : 1;
    const TensorView logits = m.logits.rows(0, wanted);
    m.head->logits(c, pending, n - wanted, logits, scratch);
    return logits;
  }
  const TensorView output = cut(m.output, n);
  residual_add(c.device.compute(), {.residual = pending.residual,
                                    .delta = pending.delta,
                                    .delta_bias = pending.bias,
                                    .out = output,
                                    .dropout = {}});
  return output;
}

}  // namespace trireme
