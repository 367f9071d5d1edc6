// Where each rank of a grid is: a table for the log, and the rule that a tp group stays inside a
// host. Pure, no MPI.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/comm/grid_shape.hpp"

namespace trireme {

struct RankPlace {
  std::string host;
  int node = 0;        // hosts by number: two may have one name
  std::string device;  // "GPU 3 GPU-1a2b3c4d", "processors 0-7"
};

// One line a rank; from `most` ranks on one line for each host, with the range of its ranks.
// `places` is by rank.
std::vector<std::string> rank_table(const GridShape& shape, std::span<const RankPlace> places,
                                    size_t most = 64);

// The first tp group that is on several hosts, in words with the remedy, or "".
std::string tp_split_fault(const GridShape& shape, std::span<const RankPlace> places);

}  // namespace trireme
