// A whole model in one chunk, with weights that hide nothing (non-zero biases, gains away from
// one), for tests that compare gradients between layouts and with finite differences.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/random.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/model/chunk.hpp"

namespace trireme::test {

// Odd sizes: vocabulary 61, MLP 172, in the Llama family fewer KV heads than query heads.
inline ModelShape odd_model(bool llama, float dropout = 0) {
  ModelShape m;
  m.family = llama ? Family::llama : Family::gpt2;
  m.layers = 3;
  m.hidden = 24;
  m.heads = 4;
  m.kv_heads = llama ? 2 : 4;
  m.head_size = 6;
  m.ffn = 172;
  m.vocab = 61;
  m.max_sequence = 10;
  m.tied = m.bias = m.learned_positions = m.layer_norm = !llama;
  m.gated = llama;
  m.dropout = dropout;
  return m;
}

// Qwen3's norms of q and k, with heads that are wider than hidden / heads, and Qwen2's biases.
inline ModelShape qwen_model(float dropout = 0) {
  ModelShape m = odd_model(true, dropout);
  m.head_size = 10;
  m.qk_norm = m.qkv_bias = true;
  return m;
}

inline float test_weight(const ParameterSpec& spec, int64_t index) {
  const auto n =
      static_cast<float>(normal_at(stream_key(99, spec.name), static_cast<uint64_t>(index)));
  if (spec.initial == InitialValue::ones) return 1 + 0.2f * n;
  if (spec.initial == InitialValue::zeros) return 0.2f * n;
  return 0.15f * n;
}

class ModelHarness {
 public:
  ModelHarness(const ModelShape& model, ChunkOptions options, Device& device,
               const Communicator& tp)
      : model_(model),
        options_(options),
        device_(device),
        tp_(tp),
        table_(model, {options.grid, options.here, 1, options.sequence_parallel, 500}),
        arena_(sized()),
        store_(table_, model.compute, arena_),
        scratch_(model, options, true, true, arena_),
        chunk_(model, options, {0, model.layers}, true, true, store_),
        context_{device, tp, nullptr, device.new_stream("tensor parallel"), {}, {}} {
    chunk_.take_stashes(1, arena_, scratch_);
    scratch_.prepare(device.compute());
    take_batch(arena_);
    for (size_t i = 0; i < table_.entries().size(); ++i) fill(static_cast<int>(i));
  }

  // Sum of the token losses; gradients are in the store afterwards.
  double run(Mode mode, int64_t step = 0) {
    Stream& stream = device_.compute();
    store_.zero_gradients(stream);
    StepState values = {};
    values.seed = 5;
    values.step = step;
    values.first_sample = 40;
    values.training = mode == Mode::train;
    set_step(stream, state_, values);
    chunk_.forward(context_, mode, 0, batch_, {}, nullptr);
    if (mode == Mode::train) chunk_.backward(context_, 0, batch_, {}, nullptr);
    stream.synchronize();
    const StepState result = get_step(stream, state_);
    counted = result.sums[1];
    return result.sums[0];
  }

  MicroBatch& batch() { return batch_; }
  int64_t tp_shards() const { return context_.tp_shards; }
  const ParameterTable& table() const { return table_; }
  const ParameterStore& store() const { return store_; }
  const Arena& arena() const { return arena_; }
  std::vector<float> gradient(int entry) const {
    const auto view = store_.gradient(entry).host<float>();
    const int64_t n = table_.entries()[static_cast<size_t>(entry)].real_elements();
    return {view.begin(), view.begin() + n};
  }
  float counted = 0;

 private:
  Arena sized() {
    Arena dry = Arena::dry();
    ParameterStore store(table_, model_.compute, dry);
    ChunkScratch scratch(model_, options_, true, true, dry);
    Chunk chunk(model_, options_, {0, model_.layers}, true, true, store);
    chunk.take_stashes(1, dry, scratch);
    take_batch(dry);
    return Arena::real(dry.high_water_bytes());
  }

  void take_batch(Arena& arena) {
    const int64_t n = options_.batch.tokens();
    batch_.tokens = arena.take({n}, DType::i32, "batch");
    batch_.targets = arena.take({n}, DType::i32, "batch");
    batch_.mask = arena.take({n}, DType::f32, "batch");
    batch_.positions = arena.take({n}, DType::i32, "batch");
    state_ = reinterpret_cast<StepState*>(
        arena.take({static_cast<int64_t>(sizeof(StepState)) / 4}, DType::f32, "step state").data);
    if (arena.is_dry()) return;
    context_.state = state_;
    for (int64_t i = 0; i < n; ++i) {
      const auto u = static_cast<size_t>(i);
      batch_.tokens.host<int32_t>()[u] = static_cast<int32_t>((i * 17 + 3) % model_.vocab);
      batch_.targets.host<int32_t>()[u] = static_cast<int32_t>((i * 29 + 11) % model_.vocab);
      batch_.mask.host<float>()[u] = i % 5 == 2 ? 0.0f : 1.0f;
      batch_.positions.host<int32_t>()[u] = static_cast<int32_t>(i % options_.batch.sequence);
    }
  }

  void fill(int index) {
    const ParameterEntry& e = table_.entries()[static_cast<size_t>(index)];
    const auto view = store_.value(index).host<float>();
    const int64_t first = e.first_row * e.local.row_elements();
    for (int64_t i = 0; i < e.elements(); ++i)
      view[static_cast<size_t>(i)] = i < e.real_elements() ? test_weight(e.spec, first + i) : 0.0f;
  }

  ModelShape model_;
  ChunkOptions options_;
  Device& device_;
  const Communicator& tp_;
  ParameterTable table_;
  MicroBatch batch_;
  StepState* state_ = nullptr;
  Arena arena_;
  ParameterStore store_;
  ChunkScratch scratch_;
  Chunk chunk_;
  LayerContext context_;
};

}  // namespace trireme::test
