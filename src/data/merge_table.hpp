// Which adjacent pairs of tokens merge, in which order, into what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace trireme {

struct Merge {
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  uint32_t rank = kNever;  // lower merges first
  int32_t id = -1;         // of the result
};

// A flat hash table of 64-bit keys, at most half full.
class MergeTable {
 public:
  explicit MergeTable(size_t pairs);
  // False where the pair is there already.
  bool add(int32_t left, int32_t right, Merge merge);
  // A merge with rank kNever where the pair does not merge.
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = home(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t home(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }

  size_t mask_;
  int shift_;
  std::vector<Slot> slots_;
};

}  // namespace trireme
