// Which dataset of a blend each sample comes from: Megatron's error-greedy order.
//
// Sample i comes from the dataset whose number of samples so far is farthest below its weight
// times max(i, 1), in double precision, the first one where several are equal; it is that
// dataset's next sample. A pure function of its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trireme/data/index_memory.hpp"

namespace trireme {

// Memory: 2 bytes a sample and about 1 more, all of it index memory.
class BlendOrder {
 public:
  // `samples` samples by `weights` (any sum; normalized here). At most kMostDatasets of them.
  static BlendOrder weighted(std::span<const double> weights, int64_t samples,
                             std::shared_ptr<IndexMemory> memory);
  // Every sample of every dataset once, `sizes` of them: one that is used up stands aside.
  static BlendOrder exhaustive(std::span<const int64_t> sizes, std::shared_ptr<IndexMemory> memory);

  struct Place {
    int64_t dataset = 0, sample = 0;
    bool operator==(const Place&) const = default;
  };
  int64_t samples() const { return static_cast<int64_t>(datasets_.size()); }
  // 0 <= i < samples().
  Place at(int64_t i) const;
  // Samples of each dataset in the whole order.
  std::span<const int64_t> used() const;

 private:
  BlendOrder(int64_t datasets, int64_t samples, std::shared_ptr<IndexMemory> memory);
  void build(std::span<const double> weights, std::span<const int64_t> sizes);

  std::shared_ptr<IndexMemory> memory_;
  int64_t count_;   // of datasets
  int64_t stride_;  // samples between two rows of counts_
  std::span<uint16_t> datasets_;
  std::span<int64_t>
      counts_;  // [rows, count_]: samples of each dataset before sample row * stride_
};

}  // namespace trireme
