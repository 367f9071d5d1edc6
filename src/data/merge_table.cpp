#include "data/merge_table.hpp"

#include <bit>

namespace trireme {

MergeTable::MergeTable(size_t pairs) {
  const size_t slots = std::bit_ceil(2 * pairs + 2);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  slots_.resize(slots);
}

bool MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = home(key);
  for (; slots_[i].key != kEmpty; i = (i + 1) & mask_)
    if (slots_[i].key == key) return false;
  slots_[i] = {key, merge};
  return true;
}

}  // namespace trireme
