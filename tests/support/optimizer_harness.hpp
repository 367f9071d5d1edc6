// The parameters of one rank with gradient sync and optimizer, but no layers: gradients are made
// from names and global indices, so that every layout must give what one process computes.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/model_harness.hpp"
#include "support/rank_test.hpp"
#include "trireme/comm/process_grid.hpp"
#include "trireme/parallel/distributed_adamw.hpp"
#include "trireme/parallel/gradient_sync.hpp"
#include "trireme/parallel/shard_layout.hpp"

namespace trireme::test {

struct Layout {
  GridShape grid;
  int zero = 1;
  bool sequence_parallel = false;
  std::string text() const {
    return fmt::format("{}, zero {}{}", grid.text(), zero,
                       sequence_parallel ? ", sequence parallel" : "");
  }
};

// Layouts of all ranks of the world, for a model of five layers.
inline std::vector<Layout> layouts_of(int ranks) {
  std::vector<Layout> layouts;
  const auto add = [&](int tp, int cp, int dp) {
    for (const int zero : {0, 1})
      for (const bool sequence_parallel : {false, true})
        if (!sequence_parallel || tp > 1)
          layouts.push_back({{tp, cp, dp, ranks / (tp * cp * dp)}, zero, sequence_parallel});
  };
  for (int tp = 1; tp <= ranks; tp *= 2)
    for (int dp = 1; tp * dp <= ranks; dp *= 2) add(tp, 1, dp);
  if (ranks >= 4) add(1, 2, ranks / 2);
  return layouts;
}

inline ModelShape five_layers(bool llama, DType compute = DType::f32) {
  ModelShape model = odd_model(llama);
  model.layers = 5;
  model.ffn = 44;
  model.compute = compute;
  return model;
}

inline int64_t global_index(const ParameterEntry& entry, int64_t local) {
  return entry.first_row * entry.local.row_elements() + local;
}

// The gradient of the summed loss by one element in one step.
inline float total_gradient(const std::string& name, int64_t index, int step) {
  const uint64_t key = stream_key(static_cast<uint64_t>(1000 + step), name);
  return static_cast<float>(normal_at(key, static_cast<uint64_t>(index)));
}

constexpr int64_t kSmallBucket = 1500;  // elements: several buckets, one of them nearly all padding

class OptimizerHarness {
 public:
  OptimizerHarness(const ModelShape& model, const Layout& layout, int64_t bucket = kSmallBucket,
                   AdamWOptions options = {})
      : grid(world(), layout.grid, model.kv_heads, device()),
        table(model, {layout.grid, grid.here(), 1, layout.sequence_parallel, bucket}),
        shards(table, grid.dp().rank(), grid.dp().size(), layout.zero),
        arena_(sized(model)),
        store(table, model.compute, arena_),
        memory(shards, arena_),
        state(take_state(arena_)),
        sync(store, shards, grid, device()),
        adamw(store, shards, memory, sync, grid, options, device()),
        layout_(layout) {
    for (size_t g = 0; g < table.groups().size(); ++g)
      fill_zero(device().compute(), store.group_values(static_cast<int>(g)));
  }

  // Ranks that share the sum of an entry's gradient.
  int contributors(const ParameterSpec& spec) const {
    const int dp = layout_.grid.dp * layout_.grid.cp;
    switch (spec.extra_sum) {
      case ExtraSum::none:
        return dp;
      case ExtraSum::tp:
        return dp * layout_.grid.tp;
      case ExtraSum::kv_copies:
        return dp * grid.kv_copies().size();
      case ExtraSum::tied:
        return dp * grid.tied_embedding().size();
    }
    return 0;
  }

  // Each rank holds an equal part of `gradient(name, index)`; padding holds zero.
  template <class Function>
  void fill_gradients(const Function& gradient) {
    store.zero_gradients(device().compute());
    for (size_t e = 0; e < table.entries().size(); ++e) {
      const ParameterEntry& entry = table.entries()[e];
      const auto part = static_cast<float>(contributors(entry.spec));
      const auto view = store.gradient(static_cast<int>(e)).template host<float>();
      for (int64_t i = 0; i < entry.real_elements(); ++i)
        view[static_cast<size_t>(i)] = gradient(entry.spec.name, global_index(entry, i)) / part;
    }
  }

  // As a backward pass reports them.
  void report_layers() {
    for (const int64_t layer : layers_backward()) sync.gradient_ready(layer);
  }
  std::vector<int64_t> layers_backward() const {
    std::vector<int64_t> layers;
    for (const ParameterEntry& entry : table.entries())
      if (layers.empty() || layers.back() != entry.spec.layer) layers.push_back(entry.spec.layer);
    return layers;
  }

  void init_masters() {
    for (size_t e = 0; e < table.entries().size(); ++e) {
      const ParameterEntry& entry = table.entries()[e];
      std::vector<float> values(static_cast<size_t>(entry.real_elements()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = test_weight(entry.spec, global_index(entry, static_cast<int64_t>(i)));
      adamw.set_master(static_cast<int>(e), values);
    }
    adamw.values_from_masters();
  }

  struct StepNumbers {
    float learning_rate = 0.01f, clip = 0, tokens = 8, loss = 20;
    int64_t updates = 0;
  };
  // One optimizer step behind fill_gradients. Returns the step state.
  StepState step(const StepNumbers& numbers) {
    StepState values = {};
    values.learning_rate = numbers.learning_rate;
    values.clip = numbers.clip;
    values.correction1 = bias_correction(0.9f, numbers.updates);
    values.correction2 = bias_correction(0.95f, numbers.updates);
    set_step(device().compute(), state, values);
    // Each replica counts its share, on its last stage's first tp rank.
    if (grid.last_stage() && grid.here().tp == 0) {
      state->sums[0] = numbers.loss / static_cast<float>(grid.dp().size());
      state->sums[1] = numbers.tokens / static_cast<float>(grid.dp().size());
    }
    sync.begin_step();
    report_layers();
    sync.finish();
    adamw.finish_norm(state);
    adamw.step(state);
    for (const int64_t layer : layers_backward()) sync.before_use(layer);
    return get_step(device().compute(), state);
  }

  const ProcessGrid grid;
  const ParameterTable table;
  const ShardLayout shards;

 private:
  Arena sized(const ModelShape& model) const {
    Arena dry = Arena::dry();
    ParameterStore dry_store(table, model.compute, dry);
    OptimizerMemory dry_memory(shards, dry);
    take_state(dry);
    return Arena::real(dry.high_water_bytes());
  }
  static StepState* take_state(Arena& arena) {
    const int64_t words = static_cast<int64_t>(sizeof(StepState)) / 4;
    return reinterpret_cast<StepState*>(arena.take({words}, DType::f32, "step state").data);
  }
  Arena arena_;

 public:
  const ParameterStore store;
  const OptimizerMemory memory;
  StepState* const state;
  GradientSync sync;
  DistributedAdamW adamw;

 private:
  Layout layout_;
};

// What a checkpoint would hold: whole tensors by name, as 32-bit words.
class LogicalFile {
 public:
  // Collective over the world: afterwards every rank has everything. Checks that each element of
  // each tensor comes exactly once.
  void write(const std::vector<GlobalSlice>& slices) {
    std::string mine;
    for (const GlobalSlice& slice : slices) append(slice, mine);
    for (const std::string& bytes : world().gather_all(mine)) take(bytes);
    for (const auto& [name, tensor] : tensors_)
      for (const int times : tensor.written) ASSERT_EQ(times, 1) << name;
  }
  void read(const std::vector<GlobalSlice>& slices) const {
    for (const GlobalSlice& slice : slices) {
      const Tensor& tensor = tensors_.at(slice.name);
      const std::span<float> to = slice.local.host<float>();
      for_each(slice.origin, slice.local.shape, slice.whole,
               [&, i = size_t{0}](int64_t at) mutable {
                 to[i++] = tensor.values[static_cast<size_t>(at)];
               });
    }
  }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  const std::vector<float>& values(const std::string& name) const {
    return tensors_.at(name).values;
  }
  size_t size() const { return tensors_.size(); }

 private:
  struct Tensor {
    std::vector<float> values;
    std::vector<int> written;
  };
  struct Header {
    char name[64];
    Shape whole, origin, local;
  };

  template <class Function>
  static void for_each(const Shape& origin, const Shape& local, const Shape& whole,
                       Function&& function) {
    const int64_t columns = whole.dims == 2 ? whole[1] : 1;
    const int64_t width = local.dims == 2 ? local[1] : 1;
    const int64_t first_column = whole.dims == 2 ? origin[1] : 0;
    for (int64_t r = 0; r < local[0]; ++r)
      for (int64_t c = 0; c < width; ++c) function((origin[0] + r) * columns + first_column + c);
  }
  static void append(const GlobalSlice& slice, std::string& bytes) {
    Header header = {};
    std::strncpy(header.name, slice.name.c_str(), sizeof(header.name) - 1);
    header.whole = slice.whole;
    header.origin = slice.origin;
    header.local = slice.local.shape;
    bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
    bytes.append(reinterpret_cast<const char*>(slice.local.data), slice.local.bytes());
  }
  void take(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      Header header;
      std::memcpy(static_cast<void*>(&header), bytes.data() + at, sizeof(header));
      at += sizeof(header);
      Tensor& tensor = tensors_[header.name];
      tensor.values.resize(static_cast<size_t>(header.whole.elements()));
      tensor.written.resize(tensor.values.size());
      for_each(header.origin, header.local, header.whole, [&](int64_t i) {
        std::memcpy(&tensor.values[static_cast<size_t>(i)], bytes.data() + at, sizeof(float));
        ++tensor.written[static_cast<size_t>(i)];
        at += sizeof(float);
      });
    }
  }
  std::map<std::string, Tensor> tensors_;
};

}  // namespace trireme::test
