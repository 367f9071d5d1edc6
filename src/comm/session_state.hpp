// What all communicators of a session share: who this rank is, the communication that the host must
// move on, and the handle used to agree on failures. Private to comm; used by both data planes.
#pragma once

#include <mpi.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Communication made of several steps: the next one starts only when the host asks.
class SteppedWork {
 public:
  virtual ~SteppedWork() = default;
  // Starts what can be started, without blocking; true when all is done.
  virtual bool advance() = 0;
};

// Paces a wait: polls at full speed at first, then lets others have the core between polls, since
// ranks and threads may outnumber the cores.
class Patience {
 public:
  void pause();

 private:
  int64_t polls_ = 0;
};

// Thrown by require_all: every rank of a group throws the same one, so that nobody has to ask who
// knows.
class AgreedError : public Error {
 public:
  AgreedError(ExitCode code, const std::string& text, std::string who, bool whole_world,
              std::source_location where)
      : Error(code, text, where), who_(std::move(who)), whole_world_(whole_world) {}
  // "on rank 2 (host)", or empty when every rank of the group reported the failure.
  const std::string& who() const { return who_; }
  // The group holds every rank of the job.
  bool whole_world() const { return whole_world_; }

 private:
  std::string who_;
  bool whole_world_;
};

struct SessionState {
  int rank = 0;
  int size = 1;
  std::string host;
  MPI_Comm failures = MPI_COMM_NULL;  // duplicate of the world, for run_guarded alone
  // Started and not complete. Whoever waits for anything moves all of it on (`complete`), since a
  // peer may need the next step of one operation before it takes part in another.
  std::vector<SteppedWork*> work;
  // An operation was dropped while MPI still held its buffers: MPI must not be entered again,
  // except to abort.
  bool abandoned = false;
  std::vector<std::shared_ptr<void>> kept;  // memory of such operations, until the process ends

  void add(SteppedWork* item);
  void remove(const SteppedWork* item);
  // Advances everything once; what is done leaves the list.
  void poll();
  // Blocks until `requests` are done while everything else moves on.
  void complete(std::span<MPI_Request> requests, std::string_view call);
  void complete(MPI_Request request, std::string_view call) { complete({&request, 1}, call); }
};

}  // namespace trireme::inline TRIREME_BACKEND
