// Starts and ends MPI, and guards the program: whatever a rank throws, the job ends on all ranks
// with the documented exit code and one message.
#pragma once

#include <functional>
#include <string>

#include "trireme/comm/communicator.hpp"

namespace trireme::inline TRIREME_BACKEND {

class MpiSession {
 public:
  // MPI_Init_thread with MPI_THREAD_FUNNELED; errors return to the caller as Error(peer), and so
  // do ranks that MPI cannot bring together within TRIREME_START_SECONDS (300).
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  const Communicator& world() const { return *world_; }
  int node_rank() const { return node_rank_; }  // among the ranks of this host
  int node_ranks() const { return node_ranks_; }
  int nodes() const { return nodes_; }
  int node() const { return node_; }  // this host among them, in the order of their first ranks
  std::string host() const { return host_; }
  static std::string library_version();  // "Open MPI 4.1.4"; also before MPI has started

 private:
  std::unique_ptr<Communicator> world_;
  int node_rank_ = 0, node_ranks_ = 1, node_ = 0, nodes_ = 1;
  std::string host_;
};

// Runs `program` and returns the exit code for main. An Error that every rank throws (require_all,
// or the same bad deck) is printed once and returned, so that all ranks leave in order; a lone
// failure is printed with rank and host and ends the job through MPI_Abort with its code, about a
// second later, whatever the peers are doing. Other exceptions count as internal (70).
int run_guarded(MpiSession& session, const std::function<int()>& program);

}  // namespace trireme::inline TRIREME_BACKEND
