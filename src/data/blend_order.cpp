// The greedy order. Compiled without contraction of products and sums, as its errors are compared
// bit by bit.
#include "trireme/data/blend_order.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "trireme/base/checked.hpp"
#include "trireme/data/blend.hpp"

namespace trireme {
namespace {

constexpr size_t kLanes = 8;
constexpr double kLowest = std::numeric_limits<double>::lowest();

// First index of the largest weights[d] * x - counts[d]. Arrays are padded to whole lanes with
// entries that never win.
size_t farthest_behind(std::span<const double> weights, std::span<const double> counts, double x) {
  std::array<double, kLanes> most;
  std::array<double, kLanes> where{};
  most.fill(kLowest);
  for (size_t first = 0; first < weights.size(); first += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double product = weights[first + lane] * x;
      const double error = product - counts[first + lane];
      const bool larger = error > most[lane];
      most[lane] = larger ? error : most[lane];
      where[lane] = larger ? static_cast<double>(first) : where[lane];
    }
  }
  size_t best = 0;
  for (size_t lane = 1; lane < kLanes; ++lane) {
    const double here = where[lane] + static_cast<double>(lane);
    const double there = where[best] + static_cast<double>(best);
    if (most[lane] > most[best] || (most[lane] == most[best] && here < there)) best = lane;
  }
  return static_cast<size_t>(where[best]) + best;
}

}  // namespace

BlendOrder::BlendOrder(int64_t datasets, int64_t samples, std::shared_ptr<IndexMemory> memory)
    : memory_(std::move(memory)),
      count_(datasets),
      stride_(std::max<int64_t>(1024, 8 * datasets)),
      datasets_(memory_->take<uint16_t>(samples)),
      counts_(memory_->take<int64_t>(checked_mul(samples / stride_ + 2, datasets))) {
  require(datasets > 0 && datasets <= kMostDatasets, ExitCode::internal, "a blend of {} datasets",
          datasets);
}

BlendOrder BlendOrder::weighted(std::span<const double> weights, int64_t samples,
                                std::shared_ptr<IndexMemory> memory) {
  BlendOrder order(std::ssize(weights), samples, std::move(memory));
  if (!order.memory_->built()) order.build(normalized(weights), {});
  return order;
}

BlendOrder BlendOrder::exhaustive(std::span<const int64_t> sizes,
                                  std::shared_ptr<IndexMemory> memory) {
  int64_t total = 0;
  for (int64_t size : sizes) total = checked_add(total, size);
  BlendOrder order(std::ssize(sizes), total, std::move(memory));
  if (order.memory_->built()) return order;
  std::vector<double> weights;
  for (int64_t size : sizes)
    weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  order.build(weights, sizes);
  return order;
}

void BlendOrder::build(std::span<const double> weights, std::span<const int64_t> sizes) {
  const size_t n = weights.size(), padded = (n + kLanes - 1) / kLanes * kLanes;
  std::vector<double> weight(padded, 0.0), count(padded, std::numeric_limits<double>::infinity());
  std::ranges::copy(weights, weight.begin());
  std::fill_n(count.begin(), n, 0.0);
  std::vector<int64_t> taken(n);
  size_t row = 0;
  for (int64_t i = 0; i < samples(); ++i) {
    if (i % stride_ == 0) std::ranges::copy(taken, counts_.subspan(row++ * n).begin());
    const double x = std::max(static_cast<double>(i), 1.0);
    const size_t chosen = farthest_behind(weight, count, x);
    datasets_[static_cast<size_t>(i)] = static_cast<uint16_t>(chosen);
    count[chosen] += 1;
    ++taken[chosen];
    if (!sizes.empty() && taken[chosen] == sizes[chosen])
      count[chosen] = std::numeric_limits<double>::infinity();  // used up
  }
  std::ranges::copy(taken, counts_.last(n).begin());
}

std::span<const int64_t> BlendOrder::used() const {
  return counts_.last(static_cast<size_t>(count_));
}

BlendOrder::Place BlendOrder::at(int64_t i) const {
  require(i >= 0 && i < samples(), ExitCode::internal, "sample {} of a blend of {}", i, samples());
  const uint16_t dataset = datasets_[static_cast<size_t>(i)];
  const int64_t row = i / stride_;
  const auto from = datasets_.begin() + row * stride_;
  const int64_t before = std::count(from, datasets_.begin() + i, dataset);
  return {dataset, counts_[static_cast<size_t>(row * count_ + dataset)] + before};
}

}  // namespace trireme
