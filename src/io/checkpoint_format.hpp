// The bytes of a checkpoint file: the block at its start, the index records of /checksums, the text
// of /header, names and element types. `doc/checkpoint_format.md` is this in words.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/checkpoint_file.hpp"

namespace trireme::io {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian memory");

// The block before the HDF5 superblock (HDF5 calls it the user block). A power of two, and the
// largest alignment, so that it moves no dataset off its alignment.
constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr int64_t kLargestAlignment = int64_t{1} << 20;
constexpr int64_t kSmallestAlignment = 4096;
constexpr int64_t kAlignmentThreshold = int64_t{64} << 10;
// Where large tensors start: 1 MiB, the stripe of parallel file systems, and less in small files,
// so that padding stays near 2 %. A power of two. Pure.
int64_t alignment_for(std::span<const StoredTensor> tensors);
constexpr uint64_t kFormatVersion = 1;
constexpr size_t kLargestName = 199;
constexpr int64_t kMostTensors = int64_t{1} << 20;
constexpr int64_t kLargestHeader = int64_t{16} << 20;

struct Block {
  std::array<char, 16> magic;
  uint64_t version;
  uint64_t file_bytes;
  uint64_t header_offset, header_bytes;  // text of /header
  uint64_t records_offset, records;      // /checksums
  std::array<uint64_t, 2> records_sum;   // of the bytes of the records
  std::array<uint64_t, 2>
      structure_sum;                  // of all bytes but this block, the records and tensor data
  std::array<uint64_t, 2> block_sum;  // of the bytes of this block before this field
};
static_assert(sizeof(Block) == 112);

// One element of the compound dataset /checksums.
struct Record {
  std::array<char, kLargestName + 1> name;  // padded with zeros
  std::array<char, 8> dtype;                // "f32", "bf16", "i32", "u16"
  uint64_t dims;
  std::array<int64_t, 4> extent;  // unused ones are zero
  uint64_t offset;
  uint64_t bytes;
  std::array<uint64_t, 2> sum;
};
static_assert(sizeof(Record) == 280);

// What the plan of a file knows before the data are written.
struct FileIndex {
  int64_t file_bytes = 0;
  int64_t header_offset = 0, header_bytes = 0;
  int64_t records_offset = 0;
  ElementSum structure_sum;
  std::vector<StoredTensor> tensors;  // by name
  int64_t records_bytes() const { return static_cast<int64_t>(tensors.size() * sizeof(Record)); }
};

std::vector<Record> encode_records(const FileIndex& index);
Block encode_block(const FileIndex& index, std::span<const Record> records);
std::string encode_header(const CheckpointHeader& header);

// Throw Error(bad_data) with `file` in the text. The magic and all sums are checked.
Block decode_block(std::span<const std::byte> bytes, int64_t file_bytes, const std::string& file);
std::vector<StoredTensor> decode_records(const Block& block, std::span<const Record> records,
                                         const std::string& file);
CheckpointHeader decode_header(const std::string& text, const std::string& file);

// A range of the file and what it belongs to.
struct Extent {
  int64_t first = 0, last = 0;  // bytes [first, last)
};
// The bytes between the block, the records and the tensors: HDF5's metadata, /header and unused
// space. Throws Error(bad_data) when anything overlaps or leaves the file.
std::vector<Extent> structure_extents(const FileIndex& index, const std::string& file);

// Empty when a tensor may have this name; else why not.
std::string name_fault(const std::string& name);

}  // namespace trireme::io
