// Lays out a checkpoint: HDF5 decides where each dataset lies and writes its metadata, before a
// byte of data exists.
//
// HDF5 works on a sparse scratch file in memory, never on the disk that holds the checkpoints: a
// full or failing disk meets only plain writes, whose errors are numbers. The layout is a pure
// function of the header and of the tensors' names, types and shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint_format.hpp"

namespace trireme::io {

// HDF5's own bytes; everything between such pieces, tensors and records is zero.
struct MetadataPiece {
  int64_t offset = 0;
  std::string bytes;
};

struct FileLayout {
  FileIndex index;  // sums of tensors still empty
  std::vector<MetadataPiece> metadata;
};

// `tensors` are sorted by name and have elements; their offsets are filled in. `alignment` of large
// tensors in bytes; 0: alignment_for. Local; about a millisecond per hundred tensors. Throws
// Error(io) with HDF5's reason.
FileLayout lay_out_checkpoint(const CheckpointHeader& header, std::vector<StoredTensor> tensors,
                              int64_t alignment = 0);

}  // namespace trireme::io
