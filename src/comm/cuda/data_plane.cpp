// Making, watching and ending the NCCL communicator of a group.
//
// Bootstrap: the first rank of the group makes an id, MPI spreads it. All connections are made
// here, while the device is idle: made at the first use, as NCCL does by itself, they hold the host
// until the peer makes the same call and until running kernels end, and a kernel may be waiting for
// that very peer. NCCL refuses two ranks of one host on one GPU; where ranks share a GPU (a laptop,
// tests) each rank gives itself a host id of its own, and NCCL then joins them as if over a
// network: correct, and slower than ranks with GPUs of their own.
#include "comm/cuda/data_plane.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <vector>

namespace trireme::inline TRIREME_BACKEND {

namespace {

// How long the end of a communicator may wait for its peers before it is aborted.
constexpr std::chrono::seconds kEndPatience{10};

std::string device_id(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "reading the device's identity");
  return {properties.uuid.bytes, sizeof(properties.uuid.bytes)};
}

// Must come before the first NCCL call of the process, which the whole grid's group makes.
void name_host_where_shared(const Communicator& group, const std::string& host, int world_rank,
                            int device) {
  const std::vector<std::string> all = group.gather_all(host + '\n' + device_id(device));
  const std::set<std::string> distinct(all.begin(), all.end());
  if (distinct.size() == all.size()) return;
  const std::string own = fmt::format("{}-trireme-rank-{}", host, world_rank);
  setenv("NCCL_HOSTID", own.c_str(), 1);
}

// Sends and receives connect at their first use only: between any two ranks one message goes each
// way before any work depends on them.
void connect_pairs(const Communicator& group, Stream& stream) {
  const Buffer memory(2 * Arena::kAlignment, Memory::device);
  const TensorView out{memory.data(), {1}, DType::f32};
  const TensorView in{memory.data() + Arena::kAlignment, {1}, DType::f32};
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    transfers.push_back({Transfer::Direction::send, peer, out});
    transfers.push_back({Transfer::Direction::receive, peer, in});
  }
  fill_zero(stream, out);
  group.exchange(stream, transfers);
  stream.synchronize();
}

}  // namespace

DataPlane::DataPlane(const Communicator::State& group, const ncclUniqueId& id)
    : session(group.session), name(group.name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t status = ncclCommInitRankConfig(&comm, group.size, id, group.rank, &config);
  settle(status, "ncclCommInitRankConfig");
}

DataPlane::~DataPlane() {
  if (comm == nullptr) return;
  ncclResult_t status = ncclCommFinalize(comm);
  const auto end = std::chrono::steady_clock::now() + kEndPatience;
  while (status == ncclSuccess || status == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &status) != ncclSuccess) break;
    if (status == ncclSuccess) {
      static_cast<void>(ncclCommDestroy(comm));
      return;
    }
    if (std::chrono::steady_clock::now() > end) break;
    usleep(1000);
  }
  abort();
}

void DataPlane::abort() {
  if (comm != nullptr) static_cast<void>(ncclCommAbort(comm));
  comm = nullptr;
}

void DataPlane::fail_with(ncclResult_t status, std::string_view call, std::source_location where) {
  const char* detail = comm == nullptr ? "" : ncclGetLastError(comm);
  const std::string text =
      fmt::format("NCCL, group '{}', {}: {} ({})", name, call, ncclGetErrorString(status), detail);
  abort();
  const bool ours = status == ncclInvalidArgument || status == ncclInvalidUsage;
  throw Error(ours ? ExitCode::internal : ExitCode::peer, text, where);
}

void DataPlane::check() {
  require(comm != nullptr, ExitCode::peer, "NCCL, group '{}': used after a failure", name);
  ncclResult_t status = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &status);
  if (asked != ncclSuccess) fail_with(asked, "asking for errors", std::source_location::current());
  if (status != ncclSuccess && status != ncclInProgress)
    fail_with(status, "work in progress", std::source_location::current());
}

void DataPlane::settle(ncclResult_t status, std::string_view call, std::source_location where) {
  Patience patience;
  while (status == ncclInProgress) {
    session->poll();
    patience.pause();
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &status);
    if (asked != ncclSuccess) fail_with(asked, call, where);
  }
  if (status != ncclSuccess) fail_with(status, call, where);
}

DataPlane& data_plane_of(const Communicator::State& group) {
  require(group.data_plane != nullptr, ExitCode::internal,
          "group '{}' was not connected before its first data-plane call", group.name);
  return *group.data_plane;
}

void Communicator::connect(Device& device, Links links) {
  if (state_->data_plane || size() == 1) return;
  Stream::State& stream = device.compute().state();
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);  // collectives connect when the group is made
  name_host_where_shared(*this, state_->session->host, state_->session->rank, stream.device);
  ncclUniqueId id{};
  if (rank() == 0) {
    const ncclResult_t status = ncclGetUniqueId(&id);
    require(status == ncclSuccess, ExitCode::peer, "NCCL cannot start: {}",
            ncclGetErrorString(status));
  }
  broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  state_->data_plane = std::make_shared<DataPlane>(*state_, id);
  stream.watched->add(state_->data_plane);
  if (size() == 2 || links == Links::pairs) connect_pairs(*this, device.compute());
}

}  // namespace trireme::inline TRIREME_BACKEND
