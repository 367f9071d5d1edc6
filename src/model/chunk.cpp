#include "trireme/model/chunk.hpp"

#include <optional>

#include "model/block.hpp"
#include "model/ends.hpp"
#include "model/scratch.hpp"

namespace trireme {

struct Chunk::Impl {
  struct Slot {
    std::vector<LayerStash> layers;
    TensorView d_head;  // [R,h] gradient that the head left; last virtual stage only
  };

  // What a layer keeps, by its place in the chunk.
  Recompute keep(size_t place) const {
    if (options.recompute != Recompute::full) return options.recompute;
    const int64_t n = options.recompute_layers;
    return n == 0 || static_cast<int64_t>(place) < n ? Recompute::full : Recompute::none;
  }
  // The layer's stash; under full recomputation the shared one with the slot's input.
  LayerStash stash_of(Slot& slot, size_t place) const {
    if (keep(place) != Recompute::full) return slot.layers[place];
    LayerStash shared = scratch->layer;
    shared.residual = slot.layers[place].residual;
    return shared;
  }

  ModelShape model;
  ChunkOptions options;
  LayerRange layers;
  LocalSizes sizes;
  std::vector<Block> blocks;
  std::optional<Embedding> embedding;
  std::optional<Head> head;
  std::vector<Slot> slots;
  Scratch* scratch = nullptr;
};

Chunk::Chunk(const ModelShape& model, const ChunkOptions& options, LayerRange layers, bool embeds,
             bool has_head, const ParameterStore& parameters)
    : impl_(std::make_unique<Impl>()) {
  impl_->model = model;
  impl_->options = options;
  impl_->layers = layers;
  impl_->sizes = local_sizes(model, options);
  for (int64_t layer = layers.first; layer < layers.last; ++layer)
    impl_->blocks.emplace_back(model, options, layer, parameters);
  if (embeds) impl_->embedding.emplace(model, options, parameters);
  if (has_head) impl_->head.emplace(model, options, parameters);
}

Chunk::~Chunk() = default;
Chunk::Chunk(Chunk&&) noexcept = default;

void Chunk::take_stashes(int slots, Arena& arena, ChunkScratch& scratch) {
  impl_->scratch = &scratch.views();
  const LocalSizes& s = impl_->sizes;
  for (int i = 0; i < slots; ++i) {
    Impl::Slot slot;
    for (size_t place = 0; place < impl_->blocks.size(); ++place) {
      LayerStash stash =
          take_layer_stash(s, impl_->options.batch, impl_->keep(place), arena, "activations");
      stash.residual = arena.take({s.rows, s.hidden}, s.compute, "activations");
      slot.layers.push_back(stash);
    }
    if (impl_->head) slot.d_head = arena.take({s.rows, s.hidden}, s.compute, "head gradient");
    impl_->slots.push_back(std::move(slot));
  }
}

int64_t Chunk::rows() const {
  return impl_->sizes.rows;
}
Shape Chunk::activation_shape() const {
  return {impl_->sizes.rows, impl_->sizes.hidden};
}
LayerRange Chunk::layers() const {
  return impl_->layers;
}
bool Chunk::embeds() const {
  return impl_->embedding.has_value();
}
bool Chunk::has_head() const {
  return impl_->head.has_value();
}

TensorView Chunk::input(int slot) const {
  if (impl_->embedding) return {};
  return impl_->slots[static_cast<size_t>(slot)].layers.front().residual;
}

void Chunk::forward(LayerContext& c, Mode mode, int slot_index, const MicroBatch& batch,
                    TensorView output, ChunkObserver* observer) {
  Impl& m = *impl_;
  Impl::Slot& slot = m.slots[static_cast<size_t>(slot_index)];
  if (m.embedding) {
    if (observer != nullptr) observer->before_use(-1);
    m.embedding->forward(c, batch, slot.layers.front().residual, *m.scratch);
  }
  PendingAdd pending;
  for (size_t place = 0; place < m.blocks.size(); ++place) {
    if (observer != nullptr) observer->before_use(m.blocks[place].layer());
    LayerStash stash = m.stash_of(slot, place);
    pending = m.blocks[place].forward(c, batch, pending, stash, *m.scratch);
  }
  if (!m.head) {
    residual_add(c.device.compute(), {.residual = pending.residual,
                                      .delta = pending.delta,
                                      .delta_bias = pending.bias,
                                      .out = output,
                                      .dropout = pending.dropout});
    return;
  }
  if (observer != nullptr) observer->before_use(m.model.layers);
  m.head->run(c, mode, batch, pending, slot.d_head, *m.scratch);
}

TensorView Chunk::backward(LayerContext& c, int slot_index, const MicroBatch& batch,
                           TensorView d_output, ChunkObserver* observer) {
  Impl& m = *impl_;
  Impl::Slot& slot = m.slots[static_cast<size_t>(slot_index)];
  const TensorView d = m.head ? slot.d_head : d_output;
  if (m.head && observer != nullptr) observer->gradient_ready(m.model.layers);
  for (size_t place = m.blocks.size(); place-- > 0;) {
    const Block& block = m.blocks[place];
    LayerStash stash = m.stash_of(slot, place);
    if (m.keep(place) == Recompute::full)
      block.forward(c, batch, {}, stash, *m.scratch, Block::Purpose::recompute);
    block.backward(c, batch, stash, *m.scratch, d);
    if (observer != nullptr) observer->gradient_ready(block.layer());
  }
  if (!m.embedding) return d;
  m.embedding->backward(c, batch, d, *m.scratch);
  if (observer != nullptr) observer->gradient_ready(-1);
  return {};
}

}  // namespace trireme
