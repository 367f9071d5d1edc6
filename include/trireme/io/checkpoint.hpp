// Saving and loading the state of a run, by all ranks together, from and to slices of whole
// tensors.
//
// Files know no layout: what one layout saved, any other loads. A save is whole or absent: the
// final name appears by a rename after every byte is on the disk. `doc/checkpoint_format.md` has
// the protocol.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/base/tensor.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/device/device.hpp"
#include "trireme/io/checkpoint_file.hpp"

namespace trireme {

// What saving and loading work with. References outlive the calls.
struct CheckpointContext {
  const Communicator& world;
  Stream& stream;  // copies from and to device memory
  const Log& log;
};

// Where the elements of slices lie.
enum class SliceMemory : uint8_t {
  device,  // Memory::device, which on the CPU is host memory
  host,    // host memory, such as a snapshot
};

// What a rank's writing came to. A failure is carried to `commit`, where all ranks learn of it.
struct WriteResult {
  bool ok = false;
  std::string fault;               // why not
  std::vector<ElementScan> scans;  // of what this rank wrote, for each tensor of the file
  int64_t bytes = 0;
  double seconds = 0;
};

struct SaveReport {
  std::filesystem::path path;
  int64_t file_bytes = 0;
  double seconds = 0;    // from the start to the rename, on rank 0
  int slowest_rank = 0;  // that wrote for the longest time
  double slowest_seconds = 0;
  double bytes_per_second() const { return static_cast<double>(file_bytes) / seconds; }
};

// One save in three steps. The first and the last make collective calls on the main thread; the one
// between makes none, so that a plain thread can run it while training goes on.
class CheckpointSave {
 public:
  // Collective. Proves that the slices of all ranks hold each element of each tensor exactly once,
  // lays out the file, makes `path`.tmp and takes its space. Slices without elements are ignored; a
  // rank may have none. Slices must not change until `write` has returned. On any failure all ranks
  // throw the same error and nothing is left behind: Error(internal) for a hole, an overlap or a
  // disagreement about a tensor, Error(io) when the disk refuses.
  CheckpointSave(const CheckpointContext& context, const std::filesystem::path& path,
                 const CheckpointHeader& header, std::span<const GlobalSlice> slices,
                 SliceMemory memory = SliceMemory::device);
  // Removes what was not committed.
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  // Local, any thread, once: writes this rank's slices at their places and syncs them. Never
  // throws.
  WriteResult write() noexcept;

  // Collective, main thread. Agrees on the worst result, completes checksums, refuses NaN and
  // infinite values (Error(internal), tensors named), writes `sidecar` as path with .json, renames,
  // syncs the directory. Any failure: the same Error(io) on all ranks, the older file of that name
  // untouched. `before_rename` runs on rank 0 and may throw.
  SaveReport commit(const WriteResult& mine, const std::string& sidecar,
                    const std::function<void()>& before_rename = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether `load_checkpoint` reads and checks every byte of the file before it uses any.
enum class Trust : uint8_t { verify, verified };

// Collective. Fills the slices of every rank from the file; each rank reads only its own (any
// number of ranks may ask for the same element). f32 and bf16 are converted into each other,
// rounding to nearest even; other types must be equal. All ranks throw the same error, with a list
// of what is wrong: Error(bad_config) when a tensor is missing, has another shape, or a group of
// tensors that is asked for
// ("weights/") holds one that no rank asks for: another model; Error(bad_data) for a damaged file;
// Error(no_input) when there is none.
void load_checkpoint(const CheckpointContext& context, const std::filesystem::path& path,
                     std::span<const GlobalSlice> slices, Trust trust = Trust::verify,
                     SliceMemory memory = SliceMemory::device);

// Collective. What is wrong with the file, the same text on every rank; empty when it is whole.
// Each rank reads a share.
std::string fault_of_checkpoint(const CheckpointContext& context,
                                const std::filesystem::path& path);

}  // namespace trireme
