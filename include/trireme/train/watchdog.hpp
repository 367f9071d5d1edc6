// Ends a job that hangs. A thread checks that this rank makes progress; when a step takes longer
// than the deadline it says which ranks are behind and in which phase, and ends the process with
// 76, so that the launcher ends the job.
//
// Each rank writes its progress to a memory-mapped file in the run directory, which any rank can
// read without communication. The thread never calls MPI.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace trireme {

class Watchdog {
 public:
  struct Options {
    std::filesystem::path directory;  // shared by the ranks; made if it is missing
    int rank = 0, ranks = 1;
    double deadline_seconds = 0;  // 0: no thread, records are still written
  };
  // Throws Error(io) when the record cannot be made.
  explicit Watchdog(const Options& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A new step (or another bounded piece of work) begins: the clock starts again.
  void begin(int64_t step);
  void phase(std::string_view name);
  // Nothing is watched until the next `begin`.
  void rest();

  // The report that is printed at a deadline: ranks of this host that are stopped or gone, then
  // those that are furthest behind, at most `lines` lines. With a deadline it takes up to 3 s, to
  // see who still moves.
  std::string report(int lines = 20) const;

 private:
  struct Record;
  // A record as read.
  struct Seen {
    int rank = 0;
    std::string host, phase;
    int64_t step = 0, phases_begun = 0, beats = 0;
    bool ends = false, silent = false;
  };
  std::vector<Seen> look() const;
  void leave_if_others_end_the_job() const;
  void move_for(double seconds) const;
  double pause_seconds() const;
  void watch();
  Options options_;
  Record* record_ = nullptr;
  std::atomic<int64_t> started_ns_{0};  // 0: resting
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trireme
