// One checkpoint file, read on its own: no MPI, no HDF5 library, nothing but POSIX reads.
//
// A checkpoint is a plain HDF5 file that any HDF5 tool reads. This reader uses the index that the
// file carries in /checksums, and treats the file as hostile: sizes, offsets, names and overlaps
// are checked before anything is allocated or believed. `doc/checkpoint_format.md` describes every
// byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/tensor.hpp"
#include "trireme/io/element_sum.hpp"

namespace trireme {

// The state of a run that is not a tensor. It says nothing of the layout, so that the file is the
// same bytes whatever ranks wrote it.
struct CheckpointHeader {
  int64_t step = 0;
  int64_t consumed_samples = 0;
  int64_t consumed_tokens = 0;
  int64_t updates = 0;         // steps whose update was applied (not skipped)
  int64_t update_samples = 0;  // their samples: where the learning rate stands
  uint64_t seed = 0;
  std::string model_section;  // text of the deck's sections
  std::string optimizer_section;
  std::string data_section;
  std::string schedule_section;  // of the learning rate, lengths in samples; empty in older files
  bool operator==(const CheckpointHeader&) const = default;
};

struct StoredTensor {
  std::string name;  // "weights/NAME", "master/NAME", "adam_m/NAME", "adam_v/NAME"
  DType dtype = DType::f32;
  Shape whole;
  int64_t offset = 0;  // of element 0, in bytes from the start of the file; row-major from there
  ElementSum sum;
  int64_t bytes() const { return whole.elements() * static_cast<int64_t>(size_of(dtype)); }
};

// What is wrong with a file, or nothing.
struct VerifyReport {
  struct Tensor {
    std::string name;
    bool sum_matches = false;
    int64_t nans = 0;
    int64_t infinities = 0;
  };
  bool structure_matches = false;  // everything that is not tensor data
  std::vector<Tensor> tensors;
  bool whole() const;  // all of it right, no NaN, no infinity
  // "" when whole; else one line that names what differs.
  std::string fault() const;
};

class CheckpointFile {
 public:
  // Checks structure and index; tensor data are not read. Throws Error(no_input) where there is no
  // file, Error(bad_data) for anything that is not a complete checkpoint of a known version.
  explicit CheckpointFile(const std::filesystem::path& path);
  ~CheckpointFile();
  CheckpointFile(CheckpointFile&&) noexcept;

  const std::filesystem::path& path() const;
  int64_t file_bytes() const;
  uint64_t version() const;  // of the format
  // Equal for equal contents; from the checksums that the file carries.
  uint64_t fingerprint() const;
  const CheckpointHeader& header() const;
  const std::vector<StoredTensor>& tensors() const;  // by name
  // Null when there is none of that name.
  const StoredTensor* find(const std::string& name) const;
  // Whether there are tensors "GROUP/...".
  bool has_group(const std::string& group) const;
  // Elements [first, first + elements of `to`) of the flattened tensor in its stored type, to host
  // memory.
  void read(const StoredTensor& tensor, int64_t first, std::span<std::byte> to) const;
  // Lets the disk start on elements that are read soon.
  void prepare(const StoredTensor& tensor, int64_t first, int64_t count) const;

  // Reads share `part` of `parts` of the file: sums over what was read, [0] for the structure, then
  // one for each tensor. Summed over all parts they are those of the file. Tensors marked in
  // `skipped` (none, where it is empty) are not read. At most 8 MiB of memory.
  std::vector<ElementScan> scan_share(int part, int parts,
                                      const std::vector<bool>& skipped = {}) const;
  // Compares summed scans with what the file says of itself.
  VerifyReport judge(std::span<const ElementScan> scans) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The header of a whole file; checks the structure, not the tensor data.
CheckpointHeader read_header(const std::filesystem::path& path);

// Reads and checks every byte. Throws as CheckpointFile does when the structure is beyond reading.
VerifyReport verify(const std::filesystem::path& path);

}  // namespace trireme
