// The traffic of the dp x cp axis in a step: gradients are summed bucket by bucket while the
// backward pass goes on, and updated values are gathered while the next forward pass begins.
//
// Sums are in fp32. Gradients stay raw sums over tokens: the division by the tokens of the global
// batch is in StepState::gradient_scale. Order of sums: over the extra group of a parameter (tp,
// copies of a KV head, tied table) first, then over dp x cp; both on the whole flat buffer of the
// parameter group, whose layout is the same on all members.
//
// All calls that start communication are collective over the axis; their order is fixed by the
// table, not by who is ready first, so that it is the same on all ranks. A group of one costs
// nothing.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trireme/comm/process_grid.hpp"
#include "trireme/device/device.hpp"
#include "trireme/model/parameter_store.hpp"
#include "trireme/parallel/shard_layout.hpp"
#include "trireme/parallel/step_observer.hpp"

namespace trireme {

class GradientSync final : public StepObserver {
 public:
  // The arguments must outlive this object. Local.
  GradientSync(const ParameterStore& parameters, const ShardLayout& layout, const ProcessGrid& grid,
               Device& device);

  // Starts a step: no layer's gradient is complete. Local.
  void begin_step();
  // Makes compute wait for the gathered values of the layer. Local.
  void before_use(int64_t layer) override;
  // The layer's gradient is complete on this rank: starts the reduction of each bucket that is
  // complete and has none before it that is not. Collective over the axis.
  void gradient_ready(int64_t layer) override;
  // Starts what has not been started, and makes compute wait for all sums: behind it, the owned
  // range of every bucket holds the sum over the axis (all of it where the optimizer is not
  // sharded). Collective over the axis, tp, KV copies and the tied table. Once a step; more calls
  // do nothing.
  void finish();
  void all_gradients_ready() override { finish(); }

  // Behind the compute work issued so far, sends the owned values of shard `index` (of the layout)
  // to all ranks of the axis. Collective over the axis; nothing to do where the optimizer is not
  // sharded.
  void gather_values(size_t index);
  // Makes compute wait for all gathers (before values are saved, compared or written). Local.
  void wait_values();

  // What compute spends waiting for sums and for gathered values, where they are switched on.
  StreamTimer& exposed_reduce() { return exposed_reduce_; }
  StreamTimer& exposed_gather() { return exposed_gather_; }
  // Shards whose reduction has started in this step, in order.
  const std::vector<size_t>& started() const { return started_; }

 private:
  void start_ready();
  void start_reduce(size_t index);
  void sum_extra_groups();
  const Communicator* extra_group(ExtraSum sum) const;
  TensorView gradients(const BucketShard& shard, int64_t first, int64_t count) const;

  const ParameterStore& parameters_;
  const ShardLayout& layout_;
  const ProcessGrid& grid_;
  Device& device_;
  std::map<int64_t, std::vector<size_t>> shards_of_layer_;
  std::vector<size_t> plain_;        // shards without an extra sum, in table order
  std::vector<size_t> layers_left_;  // by shard
  std::vector<size_t> started_;
  size_t next_plain_ = 0;
  bool finished_ = true;
  std::vector<Event> gathered_;          // by shard
  std::vector<uint8_t> gather_pending_;  // by shard
  Event compute_done_, reduced_;
  StreamTimer exposed_reduce_, exposed_gather_;
};

}  // namespace trireme
