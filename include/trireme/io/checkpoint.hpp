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

// Wishes for the file on a parallel file system. The alignment is part of the file's bytes.
struct CheckpointHints {
  int64_t alignment = 0;  // of large tensors, in bytes: a power of two, 4 KiB to 1 MiB; 0: by size
  int64_t stripes = 0;    // Lustre: storage targets of a file, -1 for all; 0: the directory's way
  bool direct = true;     // large pieces are written past the page cache, where it can be had
};

// What saving and loading work with. References outlive the calls.
struct CheckpointContext {
  const Communicator& world;
  Stream& stream;  // copies from and to device memory
  const Log& log;
  CheckpointHints hints = {};
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
  double seconds = 0;    // of planning, writing (on the slowest rank) and finishing
  int slowest_rank = 0;  // that wrote for the longest time
  double slowest_seconds = 0;
  double fastest_seconds = 0;  // of the rank that wrote for the shortest time
  double pause_seconds = 0;    // for which training stood still, on the rank where it was longest
  int64_t streamed_bytes = 0;  // written during the pause, for want of snapshot memory
  std::string prune_fault;     // rank 0: why old checkpoints stay
  double bytes_per_second() const { return static_cast<double>(file_bytes) / seconds; }
};

// What rank 0's last step came to.
struct FinishResult {
  bool ok = true;
  std::string fault;
  std::string prune_fault;  // set by CheckpointDirectory: the new file is safe, old ones stay
  double seconds = 0;
};

// One save. The constructor, `agree` and `conclude` make collective calls on the main thread; what
// lies between makes none, so that a plain thread can run it while training goes on.
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
  // The same in parts: some of the slices given to the constructor, whose bytes may have been
  // copied to other memory since; then the sync. A failure is kept in `result` and ends what
  // follows. Device memory is read on the main thread only.
  void write_some(std::span<const GlobalSlice> slices, SliceMemory memory,
                  WriteResult& result) noexcept;
  void sync(WriteResult& result) noexcept;

  // Collective. Agrees on the worst result, sums checksums, refuses NaN and infinite values
  // (Error(internal), tensors named). Any other failure: the same Error(io) on all ranks, the older
  // file of that name untouched.
  void agree(const WriteResult& mine);
  // Local, any thread, behind `agree`; does something on rank 0 only: writes index and first block,
  // syncs, writes `sidecar` as path with .json, renames, syncs the directory. `before_rename` may
  // throw.
  FinishResult finish(const std::string& sidecar,
                      const std::function<void()>& before_rename = {}) noexcept;
  // Collective. Error(io) on all ranks where rank 0 could not finish.
  SaveReport conclude(const WriteResult& mine, const FinishResult& finished);

  // Collective: `agree`, `finish` and `conclude`.
  SaveReport commit(const WriteResult& mine, const std::string& sidecar,
                    const std::function<void()>& before_rename = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether `load_checkpoint` checks every byte of the file as it reads.
enum class Trust : uint8_t { verify, verified };

// Collective. The header of a whole file, read by rank 0; throws as CheckpointFile does, on all
// ranks. The structure is checked, tensor data are not.
CheckpointHeader read_header(const CheckpointContext& context, const std::filesystem::path& path);

// Collective. Fills the slices of every rank from the file; each rank reads only its own (any
// number of ranks may ask for the same element), and with Trust::verify a share of what nobody asks
// for, so that the file is read once. f32 and bf16 are converted into each other,
// rounding to nearest even; other types must be equal. All ranks throw the same error, with a list
// of what is wrong: Error(bad_config) when a tensor is missing, has another shape, or a group of
// tensors that is asked for
// ("weights/") holds one that no rank asks for: another model; Error(bad_data) for a damaged file,
// after the slices were filled with what it held; Error(no_input) when there is none.
void load_checkpoint(const CheckpointContext& context, const std::filesystem::path& path,
                     std::span<const GlobalSlice> slices, Trust trust = Trust::verify,
                     SliceMemory memory = SliceMemory::device);

// Collective. What is wrong with the file, the same text on every rank; empty when it is whole.
// Each rank reads a share.
std::string fault_of_checkpoint(const CheckpointContext& context,
                                const std::filesystem::path& path);

}  // namespace trireme
