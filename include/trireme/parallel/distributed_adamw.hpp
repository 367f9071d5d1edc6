// AdamW over the owned ranges of the parameters (ZeRO stage 1 of Rajbhandari et al., 2020, or
// replicated): fp32 master weights and two moments, 12 bytes for each owned element.
//
// Value and master: a value is always its master rounded to the compute type. Weights loaded
// without state make the master (`masters_from_values`); initial values and loaded state make the
// values
// (`set_master`, `load_slices`, then `values_from_masters`).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.hpp"
#include "trireme/device/device.hpp"
#include "trireme/model/parameter_store.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/parallel/gradient_sync.hpp"
#include "trireme/parallel/shard_layout.hpp"

namespace trireme {

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;  // on matrices and tables
};

// 1 - beta^(updates + 1), in f64: StepState::correction1 and 2. `updates`: how many were applied.
float bias_correction(float beta, int64_t updates);

// The memory: views of `layout.state_elements()` f32 each, and the segments for the device. Takes
// the same from a dry arena as from a real one.
struct OptimizerMemory {
  OptimizerMemory(const ShardLayout& layout, Arena& arena);
  TensorView master, m, v;
  TensorView segments;  // i32 words that hold AdamWSegment, one for each owned piece at most
};

class DistributedAdamW {
 public:
  // The arguments must outlive this object. State starts at zero. Local.
  DistributedAdamW(const ParameterStore& parameters, const ShardLayout& layout,
                   const OptimizerMemory& memory, GradientSync& sync, const ProcessGrid& grid,
                   const AdamWOptions& options, Device& device);

  // Adds the squares of the summed gradients that this rank speaks for to the step state, makes its
  // sums (loss, tokens, squared norm) global and finishes the norm. Collective over the grid.
  // Behind GradientSync::finish.
  void finish_norm(StepState* state);
  // Updates the owned ranges and starts to send the new values: those of the first layers first.
  // Collective over dp x cp. Behind finish_norm.
  void step(const StepState* state);

  // f32 master := the given real elements of an entry (all of them, as
  // ParameterTable::initial_values gives them; those of other owners are passed over). Local.
  void set_master(int entry, std::span<const float> values);
  // master := value. Local.
  void masters_from_values();
  // value := rounded master, on all ranks. Collective over dp x cp.
  void values_from_masters();
  // Moments := 0. Local.
  void reset_moments();

  // What this rank saves: "weights/NAME" (compute type), "master/NAME", "adam_m/NAME" and
  // "adam_v/NAME" (f32). Over all ranks each real element comes exactly once. Values must be waited
  // for only outside the owned ranges: these slices are of the owned ranges.
  std::vector<GlobalSlice> weight_slices() const;
  std::vector<GlobalSlice> state_slices() const;
  // The state that this rank must read: all it owns, copies included.
  std::vector<GlobalSlice> load_slices() const;
  // Bytes of master weights and moments on this rank.
  size_t state_bytes() const { return 3 * memory_.master.bytes(); }

 private:
  struct Range {
    int shard = 0;
    int64_t first = 0, count = 0;  // in the group's flat buffers
  };
  void make_segments();
  void make_norm_ranges();
  void order_shards();
  TensorView values_of(const BucketShard& shard) const;
  void add_state_slices(const OwnedPiece& piece, std::vector<GlobalSlice>& slices) const;

  const ParameterStore& parameters_;
  const ShardLayout& layout_;
  OptimizerMemory memory_;
  GradientSync& sync_;
  const ProcessGrid& grid_;
  AdamWOptions options_;
  Device& device_;
  std::vector<AdamWSegment> segments_;  // all shards, in order; first is in the owned range
  std::vector<size_t> first_segment_;   // by shard, and the end
  std::vector<Range> norm_ranges_;
  std::vector<size_t> forward_order_;  // shards, by their first layer
};

}  // namespace trireme
