#include "trireme/parallel/gradient_sync.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {

GradientSync::GradientSync(const ParameterStore& parameters, const ShardLayout& layout,
                           const ProcessGrid& grid, Device& device)
    : parameters_(parameters), layout_(layout), grid_(grid), device_(device) {
  const size_t count = layout.shards().size();
  for (size_t i = 0; i < count; ++i) {
    const BucketShard& shard = layout.shards()[i];
    for (const int64_t layer : shard.layers) shards_of_layer_[layer].push_back(i);
    if (shard.extra_sum == ExtraSum::none) plain_.push_back(i);
  }
  layers_left_.resize(count);
  gathered_.resize(count);
  gather_pending_.assign(count, 0);
  started_.reserve(count);
}

void GradientSync::begin_step() {
  for (size_t i = 0; i < layers_left_.size(); ++i)
    layers_left_[i] = layout_.shards()[i].layers.size();
  started_.clear();
  next_plain_ = 0;
  finished_ = false;
}

void GradientSync::before_use(int64_t layer) {
  const auto found = shards_of_layer_.find(layer);
  if (found == shards_of_layer_.end()) return;
  for (const size_t i : found->second) {
    if (gather_pending_[i] == 0) continue;
    exposed_gather_.wait(device_.compute(), gathered_[i]);
    gather_pending_[i] = 0;
  }
  grid_.dp().progress();
}

void GradientSync::gradient_ready(int64_t layer) {
  const auto found = shards_of_layer_.find(layer);
  if (found != shards_of_layer_.end())
    for (const size_t i : found->second) {
      require(!finished_ && layers_left_[i] > 0, ExitCode::internal,
              "the gradient of layer {} was reported twice in one step", layer);
      --layers_left_[i];
    }
  start_ready();
  grid_.dp().progress();
}

void GradientSync::start_ready() {
  while (next_plain_ < plain_.size() && layers_left_[plain_[next_plain_]] == 0)
    start_reduce(plain_[next_plain_++]);
}

TensorView GradientSync::gradients(const BucketShard& shard, int64_t first, int64_t count) const {
  return parameters_.group_gradients(shard.group).range(first, first + count);
}

void GradientSync::start_reduce(size_t index) {
  started_.push_back(index);
  if (grid_.dp().size() == 1) return;
  const BucketShard& shard = layout_.shards()[index];
  const TensorView whole = gradients(shard, shard.bucket.first, shard.bucket.count);
  device_.compute().record(compute_done_);
  device_.communication().wait(compute_done_);
  if (layout_.sharded())
    grid_.dp().reduce_scatter(device_.communication(), whole,
                              gradients(shard, shard.first, shard.count));
  else
    grid_.dp().all_reduce(device_.communication(), whole);
}

const Communicator* GradientSync::extra_group(ExtraSum sum) const {
  switch (sum) {
    case ExtraSum::none:
      return nullptr;
    case ExtraSum::tp:
      return &grid_.tp();
    case ExtraSum::kv_copies:
      return &grid_.kv_copies();
    case ExtraSum::tied:
      return &grid_.tied_embedding();
  }
  return nullptr;
}

// Whole groups at once: their parameters are few, and complete only with the rank's first layer.
void GradientSync::sum_extra_groups() {
  const std::vector<ParameterGroup>& groups = layout_.table().groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const Communicator* group = extra_group(groups[g].extra_sum);
    if (group == nullptr || group->size() == 1) continue;
    device_.compute().record(compute_done_);
    device_.communication().wait(compute_done_);
    group->all_reduce(device_.communication(), parameters_.group_gradients(static_cast<int>(g)));
  }
}

void GradientSync::finish() {
  if (finished_) return;
  while (next_plain_ < plain_.size()) start_reduce(plain_[next_plain_++]);
  sum_extra_groups();
  for (size_t i = 0; i < layout_.shards().size(); ++i)
    if (layout_.shards()[i].extra_sum != ExtraSum::none) start_reduce(i);
  device_.communication().record(reduced_);
  exposed_reduce_.wait(device_.compute(), reduced_);
  finished_ = true;
}

void GradientSync::gather_values(size_t index) {
  if (!layout_.sharded()) return;
  const BucketShard& shard = layout_.shards()[index];
  const TensorView flat = parameters_.group_values(shard.group);
  device_.compute().record(compute_done_);
  device_.communication().wait(compute_done_);
  grid_.dp().all_gather(device_.communication(), flat.range(shard.first, shard.first + shard.count),
                        flat.range(shard.bucket.first, shard.bucket.end()));
  device_.communication().record(gathered_[index]);
  gather_pending_[index] = 1;
}

void GradientSync::wait_values() {
  for (size_t i = 0; i < gathered_.size(); ++i) {
    if (gather_pending_[i] == 0) continue;
    exposed_gather_.wait(device_.compute(), gathered_[i]);
    gather_pending_[i] = 0;
  }
}

}  // namespace trireme
