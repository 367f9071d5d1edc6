#include "trireme/train/saver.hpp"

#include <chrono>
#include <cmath>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/train/phases.hpp"
#include "trireme/train/rank_plan.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

Clock::duration as_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// The rank that wrote longest; that it lagged where it took twice the time of the fastest.
std::string ranks_text(const SaveReport& report) {
  constexpr double kNoticed = 0.1;  // seconds
  const bool lags = report.slowest_seconds > 2 * report.fastest_seconds &&
                    report.slowest_seconds - report.fastest_seconds > kNoticed;
  return fmt::format("rank {} {} {:.2f} s, the fastest {:.2f} s", report.slowest_rank,
                     lags ? "lagged: it wrote for" : "wrote longest,", report.slowest_seconds,
                     report.fastest_seconds);
}

}  // namespace

double best_save_interval(double cost, double failures, double shortest) {
  return std::max(std::sqrt(2 * cost * failures), shortest);
}

Saver::Saver(const CheckpointContext& context, CheckpointDirectory& directory,
             const SaverOptions& options, State state, Watchdog* watchdog)
    : context_(context),
      directory_(directory),
      options_(options),
      state_(std::move(state)),
      watchdog_(watchdog),
      background_(context, directory, options.snapshot_bytes) {}

Saver::Vote Saver::vote() const {
  const bool due = failures_ > 0 && !background_.in_flight() && Clock::now() >= retry_at_;
  return {background_.busy() ? 1u : 0u, due && context_.world.rank() == 0 ? 1u : 0u};
}

// Runs a part of a save and turns its failure into a warning as long as there is a budget.
template <class Work>
void Saver::guarded(int64_t step, Work&& work) {
  if (watchdog_ != nullptr) watchdog_->begin(step);
  try {
    work();
  } catch (const Error& error) {
    if (error.code() != ExitCode::io) throw;
    failed(error, step);
  }
  if (watchdog_ != nullptr) watchdog_->rest();
}

void Saver::failed(const Error& error, int64_t step) {
  directory_.require_lease();
  const int64_t budget = options_.checkpoint.retries;
  ++failures_;
  require(failures_ <= budget, ExitCode::io,
          "the save of step {} failed: {}; {} failed in a row (checkpoint.retries = {}), the last "
          "checkpoint is of step {}",
          step, error.what(), failures_, budget, saved_step_);
  context_.log.warning("the save of step {} failed: {}; attempt {} of {} follows in {} s", step,
                       error.what(), failures_, budget, options_.checkpoint.retry_after);
  retry_at_ = Clock::now() + as_duration(options_.checkpoint.retry_after);
}

void Saver::at_boundary(const Vote& sums, double step_seconds) {
  step_seconds_ = step_seconds;
  if (background_.in_flight() && sums.busy == 0) {
    const int64_t step = background_.step();
    guarded(step, [&] {
      if (const auto report = background_.advance()) committed(*report, step);
    });
  }
  if (sums.retry > 0) save();
}

void Saver::settle() {
  if (!background_.in_flight()) return;
  const int64_t step = background_.step();
  guarded(step, [&] { committed(background_.finish(), step); });
}

void Saver::save() {
  if (background_.in_flight()) {
    const auto start = Clock::now();
    const int64_t step = background_.step();
    settle();
    context_.log.info(
        "waited {:.2f} s for the save of step {}: saves come faster than they are "
        "written (checkpoint.every)",
        seconds_since(start), step);
  }
  const SavedState state = state_();
  const int64_t step = state.header.step;
  if (step == saved_step_) return;
  guarded(step, [&] {
    if (beside_training(options_.checkpoint))
      background_.start(state.header, state.slices, state.sidecar,
                        static_cast<int>(options_.checkpoint.keep));
    else
      save_at_once(state);
  });
}

void Saver::save_at_once(const SavedState& state) {
  const auto start = Clock::now();
  SaveReport report = directory_.save(state.header, state.slices, state.sidecar,
                                      static_cast<int>(options_.checkpoint.keep));
  report.pause_seconds = context_.world.max(seconds_since(start));
  report.streamed_bytes = report.file_bytes;
  committed(report, state.header.step);
}

void Saver::save_now() {
  settle();
  const SavedState state = state_();
  const int64_t step = state.header.step;
  while (saved_step_ != step) {
    guarded(step, [&] { save_at_once(state); });
    if (saved_step_ != step) std::this_thread::sleep_until(retry_at_);
  }
}

void Saver::committed(const SaveReport& report, int64_t step) {
  saved_step_ = step;
  failures_ = 0;
  last_seconds_ = report.seconds;
  const bool beside =
      report.streamed_bytes < report.file_bytes && beside_training(options_.checkpoint);
  context_.log.info("saved {} ({:.1f} MiB in {:.2f} s, {:.2f} GB/s; training paused {:.3f} s; {})",
                    report.path.filename().string(), mebibytes(report.file_bytes), report.seconds,
                    report.bytes_per_second() * 1e-9, report.pause_seconds, ranks_text(report));
  if (beside && report.streamed_bytes > 0)
    context_.log.info(
        "the snapshot did not fit into checkpoint.memory: {:.1f} MiB were written "
        "during the pause",
        mebibytes(report.streamed_bytes));
  advise(report.pause_seconds, report.seconds);
}

// Said once, and again when it has changed much.
void Saver::advise(double cost, double writing) {
  // One unplanned stop in 50,000 hours of a GPU, as Meta reported of Llama 3 405B.
  const double hours = options_.hours_between_failures > 0 ? options_.hours_between_failures
                                                           : 50000.0 / context_.world.size();
  const double failures = hours * 3600;
  const double best = best_save_interval(cost, failures, writing);
  const int64_t every = options_.checkpoint.every;
  if (every == 0 || step_seconds_ <= 0) return;
  if (advised_seconds_ > 0 && best < 4 * advised_seconds_ && advised_seconds_ < 4 * best) return;
  advised_seconds_ = best;
  context_.log.info(
      "with a failure every {:.4g} h (fault.hours_between_failures) and {:.3g} s lost to a save, a "
      "save every {:.3g} s, {} steps, loses the least (Young); checkpoint.every = {} is {:.3g} s",
      hours, cost, best, std::max<int64_t>(1, std::llround(best / step_seconds_)), every,
      static_cast<double>(every) * step_seconds_);
}

}  // namespace trireme
