// When the launcher will end this job, so that the run can save and stop before. One rank asks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

// Seconds of what `squeue -o %L` prints: days-hours:minutes:seconds, leading parts left out when
// zero. Nothing for UNLIMITED, NOT_SET, INVALID and anything else.
std::optional<int64_t> slurm_seconds(std::string_view text);

class TimeLimit {
 public:
  // `get` gives a variable, `ask` the output of a shell command. Sources, in this order:
  // TRIREME_DEADLINE (seconds since 1970, for containers without SLURM's commands),
  // SLURM_JOB_END_TIME (SLURM 23.02 and newer), squeue (older ones).
  TimeLimit(std::function<const char*(const char*)> get,
            std::function<std::string(const std::string&)> ask);
  // Of this process' environment; squeue is given ten seconds.
  static TimeLimit of_this_job();

  // Seconds since 1970; nothing where no end is known.
  std::optional<int64_t> end() const { return end_; }
  const std::string& source() const { return source_; }
  // The limit of a running job can be raised: asks squeue again. Keeps the end where no answer
  // comes.
  void ask_again();

 private:
  bool ask_slurm();
  std::function<const char*(const char*)> get_;
  std::function<std::string(const std::string&)> ask_;
  std::optional<int64_t> end_;
  std::string source_;
};

}  // namespace trireme
