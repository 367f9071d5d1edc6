// Makes a checkpoint file without MPI, from the layout alone, for tests of what reads it.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint_format.hpp"
#include "io/hdf5_layout.hpp"
#include "support/checkpoint_state.hpp"

namespace trireme::test {

struct CheckpointBytes {
  io::FileIndex index;
  std::string bytes;

  // Writes records and the first block again, so that all sums are right for what `index` says now.
  void seal() {
    const std::vector<io::Record> records = io::encode_records(index);
    std::memcpy(bytes.data() + index.records_offset, records.data(),
                records.size() * sizeof(io::Record));
    const io::Block block = io::encode_block(index, records);
    std::memcpy(bytes.data(), &block, sizeof(block));
  }
};

inline CheckpointBytes checkpoint_bytes(const std::vector<StateTensor>& state, int64_t step) {
  std::vector<StoredTensor> tensors;
  for (const StateTensor& tensor : state)
    if (tensor.whole.elements() > 0)
      tensors.push_back({tensor.name, tensor.dtype, tensor.whole, 0, {}});
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  const io::FileLayout layout = io::lay_out_checkpoint(header_at(step), tensors);
  CheckpointBytes made{layout.index,
                       std::string(static_cast<size_t>(layout.index.file_bytes), '\0')};
  for (const io::MetadataPiece& piece : layout.metadata)
    made.bytes.replace(static_cast<size_t>(piece.offset), piece.bytes.size(), piece.bytes);
  HeldSlices held = cut_state(state, Cut::rows, 0, 1);
  fill(state, held, step);
  for (StoredTensor& tensor : made.index.tensors)
    for (const GlobalSlice& slice : held.slices) {
      if (slice.name != tensor.name) continue;
      std::memcpy(made.bytes.data() + tensor.offset, slice.local.data, slice.local.bytes());
      tensor.sum = scan_elements(tensor.dtype, {slice.local.data, slice.local.bytes()}, 0).sum;
    }
  made.seal();
  return made;
}

// A directory of this process that goes with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-unit-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no directory";
    path_ = name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trireme::test
