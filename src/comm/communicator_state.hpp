// What a Communicator owns. Private to comm; used by the control plane and by both data planes.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/session_state.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Defined by the data plane of the backend; made by `connect`.
struct DataPlane;

// Sizes at which communication is cut. Equal on all ranks of a group; `split` hands them on.
struct CommLimits {
  // Largest single MPI message: MPI counts are 32-bit, and 1 GiB keeps clear of every 2 GiB wall.
  size_t message_bytes = size_t{1} << 30;
  // Work memory of one reduction: longer ones go in rounds.
  size_t scratch_bytes = size_t{4} << 20;
  // An all-reduce whose copies from all ranks fit in this goes in one step instead of two.
  size_t one_step_bytes = size_t{64} << 10;
};

struct Communicator::State {
  // Takes over `handle` and frees it. Sets its error handler and its name. Local.
  State(std::shared_ptr<SessionState> owner, MPI_Comm handle, std::string_view group_name);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::shared_ptr<SessionState> session;
  MPI_Comm handle = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::string name;
  std::vector<int> world_ranks;
  CommLimits limits;
  std::shared_ptr<DataPlane> data_plane;  // null before `connect`
};

}  // namespace trireme::inline TRIREME_BACKEND
