// The merging itself, on a sequence of token ids.
#pragma once

#include <cstdint>
#include <vector>

#include "data/merge_table.hpp"

namespace trireme {

// Merges symbols[first, end) in place and shortens the vector to what is left.
void merge_symbols(const MergeTable& merges, size_t first, std::vector<int32_t>& symbols);

}  // namespace trireme
