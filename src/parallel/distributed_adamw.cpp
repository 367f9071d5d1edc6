#include "trireme/parallel/distributed_adamw.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr int64_t kSegmentWords = sizeof(AdamWSegment) / sizeof(int32_t);
static_assert(sizeof(AdamWSegment) % sizeof(int32_t) == 0);

TensorView slice_of_state(const TensorView& state, const BucketShard& shard) {
  return state.range(shard.state_first, shard.state_first + shard.count);
}

}  // namespace

float bias_correction(float beta, int64_t updates) {
  return static_cast<float>(1.0 -
                            std::pow(static_cast<double>(beta), static_cast<double>(updates + 1)));
}

OptimizerMemory::OptimizerMemory(const ShardLayout& layout, Arena& arena) {
  const int64_t count = layout.state_elements();
  master = arena.take({count}, DType::f32, "master weights");
  m = arena.take({count}, DType::f32, "adam m");
  v = arena.take({count}, DType::f32, "adam v");
  const int64_t pieces = std::max<int64_t>(1, static_cast<int64_t>(layout.pieces().size()));
  segments = arena.take({pieces * kSegmentWords}, DType::i32, "optimizer segments");
}

DistributedAdamW::DistributedAdamW(const ParameterStore& parameters, const ShardLayout& layout,
                                   const OptimizerMemory& memory, GradientSync& sync,
                                   const ProcessGrid& grid, const AdamWOptions& options,
                                   Device& device)
    : parameters_(parameters),
      layout_(layout),
      memory_(memory),
      sync_(sync),
      grid_(grid),
      options_(options),
      device_(device) {
  make_segments();
  make_norm_ranges();
  order_shards();
  fill_zero(device_.compute(), memory_.master);
  reset_moments();
}

// One segment for each run of owned elements with one decay. Padding is in none.
void DistributedAdamW::make_segments() {
  size_t next = 0;
  for (size_t s = 0; s < layout_.shards().size(); ++s) {
    const BucketShard& shard = layout_.shards()[s];
    first_segment_.push_back(segments_.size());
    for (; next < layout_.pieces().size(); ++next) {
      const OwnedPiece& piece = layout_.pieces()[next];
      if (piece.shard != static_cast<int>(s)) break;
      const ParameterSpec& spec = layout_.table().entries()[static_cast<size_t>(piece.entry)].spec;
      if (!spec.trained) continue;
      const int64_t first = piece.state_first - shard.state_first;
      const float decay = spec.decays ? options_.weight_decay : 0.0f;
      const bool goes_on = segments_.size() > first_segment_.back() &&
                           segments_.back().weight_decay == decay &&
                           segments_.back().first + segments_.back().count == first;
      if (goes_on)
        segments_.back().count += piece.count;
      else
        segments_.push_back({first, piece.count, decay});
    }
  }
  first_segment_.push_back(segments_.size());
  if (segments_.empty()) return;
  const std::span<const AdamWSegment> all(segments_);
  const int64_t words = static_cast<int64_t>(all.size()) * kSegmentWords;
  copy_to_device(device_.compute(), std::as_bytes(all), memory_.segments.range(0, words));
  device_.compute().synchronize();
}

void DistributedAdamW::make_norm_ranges() {
  for (const OwnedPiece& piece : layout_.pieces()) {
    const ParameterEntry& entry = layout_.table().entries()[static_cast<size_t>(piece.entry)];
    if (!layout_.speaks_for(piece) || !entry.spec.trained) continue;
    const int64_t first = entry.offset + piece.first;
    const bool goes_on = !norm_ranges_.empty() && norm_ranges_.back().shard == piece.shard &&
                         norm_ranges_.back().first + norm_ranges_.back().count == first;
    if (goes_on)
      norm_ranges_.back().count += piece.count;
    else
      norm_ranges_.push_back({piece.shard, first, piece.count});
  }
}

void DistributedAdamW::order_shards() {
  const std::vector<BucketShard>& shards = layout_.shards();
  forward_order_.resize(shards.size());
  std::iota(forward_order_.begin(), forward_order_.end(), size_t{0});
  std::stable_sort(forward_order_.begin(), forward_order_.end(), [&](size_t a, size_t b) {
    return shards[a].bucket.first_layer < shards[b].bucket.first_layer;
  });
}

void DistributedAdamW::finish_norm(StepState* state) {
  Stream& compute = device_.compute();
  for (const Range& range : norm_ranges_) {
    const int group = layout_.shards()[static_cast<size_t>(range.shard)].group;
    add_squared_norm(
        compute, parameters_.group_gradients(group).range(range.first, range.first + range.count),
        state);
  }
  const TensorView sums{reinterpret_cast<std::byte*>(state->sums), Shape{3}, DType::f32};
  grid_.world().all_reduce(compute, sums);
  trireme::finish_norm(compute, state);
}

TensorView DistributedAdamW::values_of(const BucketShard& shard) const {
  return parameters_.group_values(shard.group).range(shard.first, shard.first + shard.count);
}

void DistributedAdamW::step(const StepState* state) {
  sync_.wait_values();
  const auto* device_segments = reinterpret_cast<const AdamWSegment*>(memory_.segments.data);
  for (const size_t s : forward_order_) {
    const BucketShard& shard = layout_.shards()[s];
    const size_t first = first_segment_[s], count = first_segment_[s + 1] - first;
    if (count > 0) {
      AdamW call;
      call.gradient =
          parameters_.group_gradients(shard.group).range(shard.first, shard.first + shard.count);
      call.master = slice_of_state(memory_.master, shard);
      call.m = slice_of_state(memory_.m, shard);
      call.v = slice_of_state(memory_.v, shard);
      call.value = values_of(shard);
      call.segments = std::span<const AdamWSegment>(segments_).subspan(first, count);
      call.device_segments = device_segments + first;
      call.beta1 = options_.beta1;
      call.beta2 = options_.beta2;
      call.epsilon = options_.epsilon;
      call.state = state;
      adamw(device_.compute(), call);
    }
    sync_.gather_values(s);
  }
}

void DistributedAdamW::set_master(int entry, std::span<const float> values) {
  const ParameterEntry& e = layout_.table().entries()[static_cast<size_t>(entry)];
  require(static_cast<int64_t>(values.size()) == e.real_elements(), ExitCode::internal,
          "{} values given for the {} elements of {}", values.size(), e.real_elements(),
          e.spec.name);
  for (const OwnedPiece& piece : layout_.pieces()) {
    if (piece.entry != entry) continue;
    const auto mine =
        values.subspan(static_cast<size_t>(piece.first), static_cast<size_t>(piece.count));
    copy_to_device(device_.compute(), std::as_bytes(mine),
                   memory_.master.range(piece.state_first, piece.state_first + piece.count));
  }
  device_.compute().synchronize();
}

void DistributedAdamW::masters_from_values() {
  for (const BucketShard& shard : layout_.shards())
    cast(device_.compute(), values_of(shard), slice_of_state(memory_.master, shard));
}

void DistributedAdamW::values_from_masters() {
  for (const size_t s : forward_order_) {
    const BucketShard& shard = layout_.shards()[s];
    cast(device_.compute(), slice_of_state(memory_.master, shard), values_of(shard));
    sync_.gather_values(s);
  }
  sync_.wait_values();
}

void DistributedAdamW::reset_moments() {
  fill_zero(device_.compute(), memory_.m);
  fill_zero(device_.compute(), memory_.v);
}

std::vector<GlobalSlice> DistributedAdamW::weight_slices() const {
  std::vector<GlobalSlice> slices;
  for (const OwnedPiece& piece : layout_.pieces()) {
    if (!layout_.speaks_for(piece)) continue;
    const ParameterEntry& entry = layout_.table().entries()[static_cast<size_t>(piece.entry)];
    const int64_t first = entry.offset + piece.first;
    const TensorView view = parameters_.group_values(entry.group).range(first, first + piece.count);
    for (GlobalSlice& slice : slices_of(entry, piece.first, piece.count, view.data, view.dtype,
                                        "weights/" + entry.spec.name))
      slices.push_back(std::move(slice));
  }
  return slices;
}

void DistributedAdamW::add_state_slices(const OwnedPiece& piece,
                                        std::vector<GlobalSlice>& slices) const {
  const ParameterEntry& entry = layout_.table().entries()[static_cast<size_t>(piece.entry)];
  const std::pair<const char*, const TensorView&> states[] = {
      {"master/", memory_.master}, {"adam_m/", memory_.m}, {"adam_v/", memory_.v}};
  for (const auto& [prefix, state] : states) {
    const TensorView view = state.range(piece.state_first, piece.state_first + piece.count);
    for (GlobalSlice& slice : slices_of(entry, piece.first, piece.count, view.data, DType::f32,
                                        prefix + entry.spec.name))
      slices.push_back(std::move(slice));
  }
}

std::vector<GlobalSlice> DistributedAdamW::state_slices() const {
  std::vector<GlobalSlice> slices;
  for (const OwnedPiece& piece : layout_.pieces())
    if (layout_.speaks_for(piece)) add_state_slices(piece, slices);
  return slices;
}

std::vector<GlobalSlice> DistributedAdamW::load_slices() const {
  std::vector<GlobalSlice> slices;
  for (const OwnedPiece& piece : layout_.pieces()) add_state_slices(piece, slices);
  return slices;
}

}  // namespace trireme
