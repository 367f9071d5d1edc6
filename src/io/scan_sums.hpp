// Scans summed over ranks.
#pragma once

#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/io/element_sum.hpp"

namespace trireme::io {

// Collective, in place; every rank has as many. Counts are not negative, so they travel as they
// are.
inline void sum_scans(const Communicator& world, std::vector<ElementScan>& scans) {
  std::vector<uint64_t> words;
  words.reserve(4 * scans.size());
  for (const ElementScan& scan : scans)
    words.insert(words.end(), {scan.sum.first, scan.sum.second, static_cast<uint64_t>(scan.nans),
                               static_cast<uint64_t>(scan.infinities)});
  world.sum_each(words);
  for (size_t i = 0; i < scans.size(); ++i)
    scans[i] = {{words[4 * i], words[4 * i + 1]},
                static_cast<int64_t>(words[4 * i + 2]),
                static_cast<int64_t>(words[4 * i + 3])};
}

}  // namespace trireme::io
