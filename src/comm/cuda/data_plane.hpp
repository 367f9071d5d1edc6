// The NCCL communicator of a group. Private to comm/cuda.
#pragma once

#include <nccl.h>

#include <memory>
#include <source_location>
#include <string>
#include <string_view>

#include "comm/communicator_state.hpp"
#include "device/cuda/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Calls do not block: NCCL may still be connecting when one returns, and `settle` waits for it
// while MPI and the checks for failed peers go on.
struct DataPlane : public Watched {
  // Collective over the group: takes an NCCL id from its first rank.
  DataPlane(const Communicator::State& group, const ncclUniqueId& id);
  ~DataPlane() override;
  DataPlane(const DataPlane&) = delete;
  DataPlane& operator=(const DataPlane&) = delete;

  // Throws Error(peer) and aborts the communicator when NCCL has seen a failure.
  void check() override;
  // Waits until what was called has been issued to its stream. `status` is what the call returned.
  void settle(ncclResult_t status, std::string_view call,
              std::source_location where = std::source_location::current());

  std::shared_ptr<SessionState> session;
  std::string name;
  ncclComm_t comm = nullptr;  // null after an abort

 private:
  void abort();
  [[noreturn]] void fail_with(ncclResult_t status, std::string_view call,
                              std::source_location where);
};

// Throws Error(internal) before `connect`.
DataPlane& data_plane_of(const Communicator::State& group);

}  // namespace trireme::inline TRIREME_BACKEND
