// Uniform random windows over a range of tokens, the second sample order.
//
// The start of window s is a pure function of (seed, split, s): no state, no epochs, any s at once.
#pragma once

#include <cstdint>

#include "trireme/data/split.hpp"

namespace trireme {

// Uniform in [0, bound), unbiased: 64-bit Philox words by multiplication with rejection (Lemire,
// "Fast random integer generation in an interval", 2019). `bound` > 0.
uint64_t uniform_below(uint64_t bound, uint64_t key, uint64_t index);

class RandomWindows {
 public:
  // Windows of T+1 tokens inside [range.first, range.last), which must hold at least one.
  RandomWindows(SplitRange range, int64_t sequence, uint64_t seed, DataSplit split);
  // First token of window `sample` >= 0: uniform over range.first ... range.last - T - 1.
  int64_t start(int64_t sample) const;

 private:
  SplitRange range_;
  uint64_t choices_;
  uint64_t key_;
};

}  // namespace trireme
