// Who adds what to the checksums of a file while its tensors are read into slices.
#pragma once

#include <span>
#include <vector>

#include "trireme/base/tensor.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/io/checkpoint_file.hpp"

namespace trireme::io {

struct LoadPlan {
  // For each slice of this rank: its elements count for the checksum. Of equal slices of several
  // ranks (copies) one counts.
  std::vector<bool> counts;
  // For each tensor of the file: slices that count hold each of its elements exactly once, so that
  // nobody needs to read it again to check it.
  std::vector<bool> covered;
};

// Collective. `mine` find their tensors in the file.
LoadPlan plan_load(const Communicator& world, const CheckpointFile& file,
                   std::span<const GlobalSlice> mine);

}  // namespace trireme::io
