// One job at a time in a run directory: a lease file with the holder's host and process, kept alive
// by a heartbeat.
//
// The heartbeat runs in a thread of its own that touches the file and never calls MPI. Ages are
// taken between two times of the same file system, so that clocks of hosts do not matter.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/base/log.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme {

struct LeaseTimes {
  std::chrono::milliseconds heartbeat{10'000};
  std::chrono::milliseconds stale{60'000};  // without a heartbeat for this long, the holder is dead
};

class RunLease {
 public:
  // Local, for one rank of the job. Makes the directory. Takes over, with one line in the log, a
  // lease whose process is gone from this host or that had no heartbeat for LeaseTimes::stale.
  // Throws Error(io) at once when another live job holds it, naming that job, or when the directory
  // cannot be written.
  RunLease(const std::filesystem::path& run_directory, const Log& log, LeaseTimes times = {});
  // Gives the lease back, if it still is this one's.
  ~RunLease();
  RunLease(const RunLease&) = delete;
  RunLease& operator=(const RunLease&) = delete;

  // Throws Error(io) when the lease was lost: this job was stopped so long that another took it
  // over.
  void require_held() const;
  const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Collective: rank 0 takes the lease, all ranks throw its error. Null on the other ranks.
std::unique_ptr<RunLease> take_run_lease(const Communicator& world,
                                         const std::filesystem::path& run_directory, const Log& log,
                                         LeaseTimes times = {});

}  // namespace trireme
