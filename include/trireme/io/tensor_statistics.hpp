// Numbers that describe a stored tensor, and what lies beside a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "trireme/io/checkpoint_file.hpp"

namespace trireme {

// Of the finite elements; the deviation is that of the population. All zero where there are none.
struct TensorStatistics {
  double mean = 0, deviation = 0, least = 0, greatest = 0;
  int64_t zeros = 0, nans = 0, infinities = 0;
};
// Local. Reads the tensor once, in 8 MiB of memory.
TensorStatistics statistics_of(const CheckpointFile& file, const StoredTensor& tensor);

// From the .json beside a checkpoint, for people; empty where there is none or it cannot be read.
struct BesideCheckpoint {
  std::string grid, versions;
};
BesideCheckpoint read_beside(const std::filesystem::path& checkpoint);

}  // namespace trireme
