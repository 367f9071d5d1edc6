// A save beside training: the caller pauses for a copy in host memory; a thread of each rank writes
// it; when all ranks are done, rank 0's thread commits. At most one at a time.
//
// Threads make no MPI call. The main threads agree at moments of their choice: `busy` is a local
// question, and `advance` is called when all ranks have answered no.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/io/checkpoint_directory.hpp"

namespace trireme {

class BackgroundSave {
 public:
  // Takes `snapshot_bytes` of page-locked memory. What of a rank's slices exceeds it is written
  // during the pause. The directory must outlive this.
  BackgroundSave(const CheckpointContext& context, CheckpointDirectory& directory,
                 int64_t snapshot_bytes);
  // Waits for this rank's thread; a save that was not committed is removed.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Collective, with none in flight. Slices may change when it returns. Throws the same Error on
  // all ranks, as CheckpointSave does, and none is in flight then.
  void start(const CheckpointHeader& header, std::span<const GlobalSlice> slices,
             const std::string& sidecar, int keep);
  // The same on all ranks.
  bool in_flight() const;
  int64_t step() const;  // of the one in flight

  // Local: this rank's thread is at work.
  bool busy() const;
  // Collective, with one in flight and no rank busy: takes the next step of it. What was committed
  // when that was the last step. Throws the same Error on all ranks when the save failed; none is
  // in flight then.
  std::optional<SaveReport> advance();
  // Collective, with one in flight: waits for it.
  SaveReport finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
