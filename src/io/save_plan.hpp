// The plan of a save: what exists, proved to be covered exactly once, and where it goes in the
// file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/hdf5_layout.hpp"
#include "trireme/base/tensor.hpp"

namespace trireme::io {

// A rank's slices without their data, as bytes for the other ranks. Slices without elements are
// left out. Throws Error(internal) for a slice whose parts do not fit each other.
std::string pack_slices(std::span<const GlobalSlice> slices);

// Merges the packed slices of all ranks, by rank. Throws Error(internal), with a list, when ranks
// disagree about a tensor or an element is given twice or by nobody. Sorted by name, offsets unset.
std::vector<StoredTensor> merge_slices(std::span<const std::string> packed);

// The index for other ranks, as bytes.
std::string pack_index(const FileIndex& index);
FileIndex unpack_index(const std::string& packed);

}  // namespace trireme::io
