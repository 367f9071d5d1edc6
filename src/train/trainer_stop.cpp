// How a run ends: signals, the end of the job's time, and the record that all steps are done.
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/train/trainer.hpp"

namespace trireme {

void Trainer::obey(TimeLimit& limit) {
  if (settings_.fault.stop_before == 0) return;
  limit_ = &limit;
  if (!limit.end()) return;
  const auto left = *limit.end() - static_cast<int64_t>(std::time(nullptr));
  log_.info("time: {}:{:02} h left ({}); the run saves and stops {} s before the end", left / 3600,
            left / 60 % 60, limit.source(), settings_.fault.stop_before);
}

// Takes at least one step, so that a job that is started too late still gets on.
Stop Trainer::stop_of_time() {
  if (limit_ == nullptr || !limit_->end() || progress_.step == first_step_) return Stop::none;
  const double margin =
      std::max(settings_.fault.stop_before, 3 * (saver_->last_seconds() + recent_seconds_));
  const auto left = [&] { return static_cast<double>(*limit_->end() - std::time(nullptr)); };
  if (left() > margin) return Stop::none;
  limit_->ask_again();  // it may have been raised
  if (left() > margin) return Stop::none;
  log_.info("time: {:.0f} s left ({}): the run saves and stops", left(), limit_->source());
  return Stop::asked;
}

bool Trainer::should_stop() {
  if (watchdog_ != nullptr) watchdog_->begin(progress_.step);
  const auto timer = phases_.enter("agree to go on");
  const Stop mine = std::max(stop_ == nullptr ? Stop::none : stop_->requested(), stop_of_time());
  const Saver::Vote vote = saver_->vote();
  std::array<uint64_t, 5> votes = {mine == Stop::save, mine > Stop::save, mine == Stop::urgent,
                                   vote.busy, vote.retry};
  grid_.world().sum_each(votes);
  asked_ = votes[0] > 0 ? Stop::save : Stop::none;
  if (votes[1] > 0) asked_ = votes[2] > 0 ? Stop::urgent : Stop::asked;
  if (votes[1] > 0) asked_at_ = std::chrono::steady_clock::now();
  saver_->at_boundary({votes[3], votes[4]}, recent_seconds_);
  if (watchdog_ != nullptr) watchdog_->rest();
  return votes[1] > 0;
}

// Whether a save can be over before the launcher kills the job.
bool Trainer::time_to_save() const {
  if (asked_ != Stop::urgent) return true;
  const double waited = grid_.world().max(seconds_since(asked_at_));
  const bool late = waited + saver_->last_seconds() > settings_.fault.grace;
  if (late)
    log_.warning(
        "step {} is not saved: the last save took {:.2f} s and fault.grace leaves {} s "
        "before the launcher kills; the last checkpoint is of step {}",
        progress_.step, saver_->last_seconds(), settings_.fault.grace, saver_->saved_step());
  return !late;
}

// An exit code of 0 is no proof: launchers give it for jobs that they killed. So scripts look for
// complete.json, which exists only where all steps of the deck are done.
void Trainer::record_end(bool done) const {
  if (grid_.world().rank() != 0) return;
  const std::filesystem::path path =
      std::filesystem::path(settings_.run.directory) / "complete.json";
  std::error_code ignored;
  if (!done) {
    std::filesystem::remove(path, ignored);
    return;
  }
  if (std::filesystem::exists(path, ignored)) return;  // a run that is done is not touched
  nlohmann::ordered_json record;
  record["step"] = progress_.step;
  record["steps"] = settings_.run.steps;
  record["consumed_samples"] = progress_.consumed_samples;
  const std::filesystem::path temporary = path.string() + ".tmp";
  std::ofstream out(temporary, std::ios::trunc);
  out << record.dump() << "\n";
  out.close();
  if (out.good()) std::filesystem::rename(temporary, path, ignored);
  if (!out.good() || ignored)
    log_.warning("{} cannot be written; scripts that look for it will start again", path.string());
}

}  // namespace trireme
