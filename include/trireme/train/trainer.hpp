// The training run: `run` is the method, one phase a line.
//
// A run lives in a directory: the resolved deck, metrics.jsonl, checkpoints. Started again, it goes
// on from the newest whole checkpoint there. Everything that decides a number is a function of
// (deck, step, global sample), so that a stopped and resumed run is bit-equal to one that was not
// stopped.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/comm/process_grid.hpp"
#include "trireme/config/batch_ramp.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/data/token_source.hpp"
#include "trireme/io/checkpoint_directory.hpp"
#include "trireme/io/run_lease.hpp"
#include "trireme/parallel/gradient_sync.hpp"
#include "trireme/train/batch_loader.hpp"
#include "trireme/train/learning_rate.hpp"
#include "trireme/train/phases.hpp"
#include "trireme/train/rank_plan.hpp"
#include "trireme/train/sample_log.hpp"
#include "trireme/train/saver.hpp"
#include "trireme/train/step_report.hpp"
#include "trireme/train/stop_request.hpp"
#include "trireme/train/time_limit.hpp"
#include "trireme/train/watchdog.hpp"

namespace trireme {

// Where a run stands. Counts are of the whole job.
struct Progress {
  int64_t step = 0;  // completed
  int64_t consumed_samples = 0;
  int64_t updates = 0;         // steps whose update was applied
  int64_t update_samples = 0;  // samples of applied updates: where the learning rate stands
};

// What this rank's compute stream spends on traffic of each axis, or waiting for it, in seconds.
struct ExposedTimes {
  double tp = 0;
  double pp = 0;                  // with the idle time of the schedule
  double reduce = 0, gather = 0;  // dp: sums of gradients, updated values
  int64_t tp_shards = 0;          // activations that went over tp beside products
};

class Trainer {
 public:
  // Collective. Sizes and takes all memory, opens the data. Throws Error before anything is
  // written.
  Trainer(Deck deck, const ProcessGrid& grid, Device& device, const Log& log);
  ~Trainer();

  // Makes `run` stop when asked; without it signals keep their usual meaning. `stop` outlives
  // `run`.
  void obey(const StopRequest& stop) { stop_ = &stop; }
  // Makes `run` save and stop before the job's end (fault.stop_before). One rank is enough; `limit`
  // outlives `run`.
  void obey(TimeLimit& limit);

  // Collective. Returns the exit code: ok when all steps are done, stopped when asked to stop
  // before.
  ExitCode run();

  // Collective. One step, without reports, evaluation or saving; for the bench.
  StepReport advance();
  // Collective. Waits for what the last step left in flight; before the trainer goes.
  void settle();
  // Collective. Initial weights instead of a run directory's state; for the bench.
  void start_fresh();

  Phases& phases() { return phases_; }
  // Switches the clocks of exposed communication on, from zero, or off.
  void time_exposed(bool on);
  // Since they were switched on. Behind `settle`.
  ExposedTimes exposed();
  const Arena& arena() const { return arena_; }
  const RankPlan& plan() const { return plan_; }

 private:
  void open_directory();
  void restore();
  void load(const std::filesystem::path& path, bool with_state);
  void take_schedule(const CheckpointHeader& header, const std::filesystem::path& path);
  void announce() const;
  void build();
  void open_sources();

  StepState step_state() const;
  void prepare(int64_t consumed);
  void forward_and_backward(int64_t batch);
  StepReport finish_step(const StepState& result, int64_t batch, double seconds);
  void evaluate();
  struct ValidationSet {
    std::string name;
    const TokenSource* source = nullptr;  // on ranks that read
    int64_t samples = 0;
  };
  void evaluate(const ValidationSet& set);
  double validation_loss(const ValidationSet& set, int64_t& tokens);
  void open_validation();
  void open_sample_log();
  SavedState saved_state();
  void dump_gradients();
  void write_deck() const;
  void check_replicas();
  bool should_stop();
  Stop stop_of_time();
  void record_end(bool done) const;
  bool time_to_save() const;
  void report(const StepReport& report);
  int64_t batch_now() const;
  const ActionList& list_for(int64_t micro_batches, Pass pass);

  Deck deck_;
  const Settings& settings_;
  const ProcessGrid& grid_;
  Device& device_;
  const Log& log_;
  Watchdog* watchdog_ = nullptr;
  RankPlan plan_;
  BatchRamp ramp_;
  LearningRate rate_;
  Arena arena_;
  std::unique_ptr<RankMemory> memory_;
  std::unique_ptr<LayerContext> context_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<DistributedAdamW> optimizer_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<BatchLoader> loader_;
  DataSources data_;
  std::map<std::pair<int64_t, Pass>, ActionList> lists_;

  std::unique_ptr<RunLease> lease_;
  std::unique_ptr<CheckpointDirectory> checkpoints_;
  std::unique_ptr<Watchdog> own_watchdog_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Saver> saver_;
  const StopRequest* stop_ = nullptr;
  TimeLimit* limit_ = nullptr;
  Phases phases_;
  Progress progress_;
  Stop asked_ = Stop::none;
  bool evaluates_ = false;
  std::vector<ValidationSet> validation_;
  std::unique_ptr<SampleLog> sample_log_;
  int64_t first_step_ = 0;  // of this start
  int64_t skipped_in_a_row_ = 0;
  int64_t lines_ = 0;
  double recent_seconds_ = 0;  // of a step, smoothed: for the time that is left
  std::chrono::steady_clock::time_point asked_at_;
};

}  // namespace trireme
