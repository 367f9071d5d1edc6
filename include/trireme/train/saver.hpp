// When and how a run saves: beside training or at once, again after a failure, and how often it
// should.
//
// A failed save is a warning, and is tried again until the budget is used up; then the run ends
// with 74. Older checkpoints stay whatever happens.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/config/settings.hpp"
#include "trireme/io/background_save.hpp"
#include "trireme/train/watchdog.hpp"

namespace trireme {

// What is saved: the state of a run at one step.
struct SavedState {
  CheckpointHeader header;
  std::vector<GlobalSlice> slices;
  std::string sidecar;
};

struct SaverOptions {
  CheckpointSettings checkpoint;
  int64_t snapshot_bytes = 0;         // of this rank; 0 where it has nothing to save
  double hours_between_failures = 0;  // of the whole job
};

// Seconds between saves that lose the least time, where failures come every `failures` seconds on
// average and a save costs `cost` seconds: sqrt(2 cost failures) (Young, CACM 17, 1974). Not less
// than `shortest`, which the writing takes.
double best_save_interval(double cost, double failures, double shortest);

class Saver {
 public:
  using State = std::function<SavedState()>;  // of the present step

  // `watchdog` hears of every step of a save and may be null. Takes the snapshot's memory.
  Saver(const CheckpointContext& context, CheckpointDirectory& directory,
        const SaverOptions& options, State state, Watchdog* watchdog);

  // What a rank tells the others at the end of a step. Numbers are summed over ranks.
  struct Vote {
    uint64_t busy = 0;   // ranks whose thread still writes
    uint64_t retry = 0;  // rank 0: a failed save is due again
  };
  Vote vote() const;
  // Collective, with the sums of all votes; `step_seconds` of training, for advice. Commits what is
  // written, saves again what failed. Never waits for a thread.
  void at_boundary(const Vote& sums, double step_seconds);

  // Collective. Saves the present step: waits for one in flight, then starts or makes a save.
  void save();
  // Collective. Waits for the one in flight, if any.
  void settle();
  // Collective. Saves the present step, at once and again after failures until it is saved or the
  // budget is used up (Error(io)).
  void save_now();

  // Step of the last committed save; -1: none yet.
  int64_t saved_step() const { return saved_step_; }
  void resumed_at(int64_t step) { saved_step_ = step; }
  // From the start of the last save to its commit; 0: none yet.
  double last_seconds() const { return last_seconds_; }

 private:
  void save_at_once(const SavedState& state);
  void committed(const SaveReport& report, int64_t step);
  void failed(const Error& error, int64_t step);
  template <class Work>
  void guarded(int64_t step, Work&& work);
  void advise(double cost, double writing);

  CheckpointContext context_;
  CheckpointDirectory& directory_;
  SaverOptions options_;
  State state_;
  Watchdog* watchdog_;
  BackgroundSave background_;
  int64_t saved_step_ = -1;
  double last_seconds_ = 0;
  int64_t failures_ = 0;  // in a row
  std::chrono::steady_clock::time_point retry_at_;
  double step_seconds_ = 0;
  double advised_seconds_ = 0;
};

}  // namespace trireme
