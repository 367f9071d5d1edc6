// A job in the background, for tests that signal, stop or kill it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "support/run_program.hpp"

namespace trireme::test {

class BackgroundRun {
 public:
  // Starts `mpirun -n RANKS trireme WORDS...`; its output goes to a file at `log`.
  BackgroundRun(int ranks, const std::string& words, const std::filesystem::path& log);
  // Kills what is left of the job.
  ~BackgroundRun();
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;

  // Process of mpirun, and of the ranks that have started, by rank.
  pid_t launcher() const { return launcher_; }
  std::map<int, pid_t> ranks() const;
  std::string output() const;
  // Waits for the job; exit code 124 when the limit passes first (the job is killed then).
  ProgramResult wait(double limit_seconds = 60);
  // True as soon as `condition` holds; false when the job ends or the limit passes first.
  bool wait_until(const std::function<bool()>& condition, double limit_seconds = 30);
  // Until all ranks catch signals, or have finished so many steps in `run_directory`.
  bool wait_until_ranks_listen();
  bool wait_for_step(const std::filesystem::path& run_directory, int64_t step);

 private:
  bool ended();
  void kill_all() const;
  pid_t launcher_ = -1;
  int count_;
  std::filesystem::path log_;
  std::map<int, pid_t> known_;
  int status_ = -1;  // as of waitpid, once the job has ended
  bool ended_ = false;
};

// False for a process that is gone or only waits to be buried.
bool is_running(pid_t process);

}  // namespace trireme::test
