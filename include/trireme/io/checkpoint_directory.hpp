// The checkpoints of a run directory: names, the newest whole one, keeping the last N.
//
// Names: step_000000100.h5 with step_000000100.json beside it (grid, versions, whole deck: for
// people; the .h5 alone is the checkpoint). Files with other names are never touched.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/checkpoint.hpp"
#include "trireme/io/run_lease.hpp"

namespace trireme {

class CheckpointDirectory {
 public:
  // Collective. Makes RUN_DIRECTORY/checkpoints, tries it (create, reserve, write, sync, rename,
  // remove, and that every rank sees the file), and removes what a dead job left: temporary files,
  // and .json without its .h5. Throws Error(io) on all ranks. `lease` (rank 0; may be null
  // elsewhere and in tools) must outlive this and is asked before each commit.
  CheckpointDirectory(const CheckpointContext& context, const std::filesystem::path& run_directory,
                      const RunLease* lease);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path path_of(int64_t step) const;

  // Collective. Plan, write, commit, prune, in one call; `keep` as for `prune`.
  SaveReport save(const CheckpointHeader& header, std::span<const GlobalSlice> slices,
                  const std::string& sidecar, int keep);
  // The same in steps, some of them in a thread (BackgroundSave): `begin`, CheckpointSave::write,
  // CheckpointSave::agree, `finish`, CheckpointSave::conclude.
  std::unique_ptr<CheckpointSave> begin(const CheckpointHeader& header,
                                        std::span<const GlobalSlice> slices,
                                        SliceMemory memory = SliceMemory::device) const;
  // Local, any thread: finishes under the lease, then prunes.
  FinishResult finish(CheckpointSave& save, int64_t step, const std::string& sidecar,
                      int keep) const noexcept;
  // Collective. Throws Error(io) when this job lost its lease.
  void require_lease() const;

  // Collective. The newest checkpoint whose every byte verifies; broken ones are named in a warning
  // and skipped. None when there is no checkpoint at all; Error(bad_data) when there are some and
  // none is whole, for a run must not start over in silence. What it returns is protected from
  // pruning.
  std::optional<std::filesystem::path> newest_whole();
  // Collective. Calls `load`, which throws the same Error on all ranks, for the newest checkpoint;
  // where that is damaged or cannot be read (bad_data, io, no_input), it is named in a warning and
  // the next older one is tried. Which one was loaded, protected from pruning; otherwise as
  // newest_whole.
  std::optional<std::filesystem::path> load_newest(
      const std::function<void(const std::filesystem::path&)>& load);
  // This file is never pruned (a checkpoint that was loaded by name).
  void protect(const std::filesystem::path& path) { protected_.push_back(path); }
  // Collective. Renames checkpoints of later steps to NAME.superseded: for a run that starts again
  // from an earlier one of this directory, whose old future must not be found by the next start.
  void set_aside_after(int64_t step) const;

 private:
  void prepare() const;
  void prune(int64_t saved_step, int keep) const;

  CheckpointContext context_;
  std::filesystem::path path_;
  const RunLease* lease_;
  std::vector<std::filesystem::path> protected_;
};

struct NamedCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
};
// Local. Files in `directory` that have a checkpoint's final name, newest step first.
std::vector<NamedCheckpoint> list_checkpoints(const std::filesystem::path& directory);

// The files to remove after `saved_step` was committed: of the complete checkpoints up to that step
// the newest `keep` stay, as do protected ones and the saved one. Later steps are another run's or
// an older history's: they neither count nor go. keep = 0 keeps all. Pure.
std::vector<NamedCheckpoint> checkpoints_to_prune(
    const std::vector<NamedCheckpoint>& complete, int64_t saved_step, int keep,
    std::span<const std::filesystem::path> protected_files);

}  // namespace trireme
