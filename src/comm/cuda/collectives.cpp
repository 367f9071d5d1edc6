// Collectives and exchanges of tensor views by NCCL, in stream order. What only moves is moved as
// bytes.

#include "comm/cuda/data_plane.hpp"
#include "comm/row_pieces.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

ncclDataType_t sum_type(const TensorView& view, std::string_view call) {
  require(view.dtype == DType::f32 || view.dtype == DType::bf16, ExitCode::internal,
          "{} reduces f32 and bf16 only, not {}", call, name_of(view.dtype));
  return view.dtype == DType::f32 ? ncclFloat32 : ncclBfloat16;
}

// Checks the shapes of reduce_scatter and all_gather.
void require_pieces(const Communicator::State& group, const TensorView& whole,
                    const TensorView& mine, std::string_view call) {
  require(whole.dtype == mine.dtype && whole.elements() == mine.elements() * group.size,
          ExitCode::internal, "{} on {} ({} ranks): whole {} {}, mine {} {}", call, group.name,
          group.size, whole.shape.text(), name_of(whole.dtype), mine.shape.text(),
          name_of(mine.dtype));
}

// Nothing when both are the same place.
void copy_own(Stream& stream, const std::byte* from, std::byte* to, size_t bytes) {
  if (from == to || bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.state().stream),
             "copying this rank's own piece");
}

// Issues sends and receives as one group, so that their order among themselves does not matter.
void run_group(Stream& stream, DataPlane& plane, std::span<const Transfer> transfers,
               std::string_view call) {
  plane.settle(ncclGroupStart(), call);
  for (const Transfer& t : transfers) {
    if (t.view.empty()) continue;
    const bool sends = t.direction == Transfer::Direction::send;
    const ncclResult_t status = sends ? ncclSend(t.view.data, t.view.bytes(), ncclUint8, t.peer,
                                                 plane.comm, stream.state().stream)
                                      : ncclRecv(t.view.data, t.view.bytes(), ncclUint8, t.peer,
                                                 plane.comm, stream.state().stream);
    require(status == ncclSuccess || status == ncclInProgress, ExitCode::internal,
            "{} on '{}': {} {} bytes, peer {}: {}", call, plane.name,
            sends ? "sending" : "receiving", t.view.bytes(), t.peer, ncclGetErrorString(status));
  }
  plane.settle(ncclGroupEnd(), call);
}

// In a group of one: the sends to itself, in order, are its receives.
void copy_to_self(Stream& stream, std::span<const Transfer> transfers, std::string_view name) {
  std::vector<Transfer> sends, receives;
  for (const Transfer& t : transfers)
    (t.direction == Transfer::Direction::send ? sends : receives).push_back(t);
  require(sends.size() == receives.size(), ExitCode::internal,
          "exchange on {}: {} sends to itself, but {} receives", name, sends.size(),
          receives.size());
  for (size_t i = 0; i < sends.size(); ++i) {
    require(sends[i].view.bytes() == receives[i].view.bytes(), ExitCode::internal,
            "exchange on {}: a rank sends itself {} bytes and awaits {}", name,
            sends[i].view.bytes(), receives[i].view.bytes());
    copy_own(stream, sends[i].view.data, receives[i].view.data, sends[i].view.bytes());
  }
}

}  // namespace

void Communicator::all_reduce(Stream& stream, TensorView in_out, Reduce how) const {
  const ncclDataType_t type = sum_type(in_out, "all_reduce");
  if (size() == 1 || in_out.empty()) return;
  DataPlane& plane = data_plane_of(*state_);
  const auto count = static_cast<size_t>(in_out.elements());
  plane.settle(
      ncclAllReduce(in_out.data, in_out.data, count, type, how == Reduce::sum ? ncclSum : ncclMax,
                    plane.comm, stream.state().stream),
      "all_reduce");
}

void Communicator::reduce_scatter(Stream& stream, TensorView whole, TensorView mine) const {
  const ncclDataType_t type = sum_type(whole, "reduce_scatter");
  require_pieces(*state_, whole, mine, "reduce_scatter");
  if (size() == 1) return copy_own(stream, whole.data, mine.data, mine.bytes());
  if (mine.empty()) return;
  DataPlane& plane = data_plane_of(*state_);
  plane.settle(ncclReduceScatter(whole.data, mine.data, static_cast<size_t>(mine.elements()), type,
                                 ncclSum, plane.comm, stream.state().stream),
               "reduce_scatter");
}

void Communicator::all_gather(Stream& stream, TensorView mine, TensorView whole) const {
  require_pieces(*state_, whole, mine, "all_gather");
  if (size() == 1) return copy_own(stream, mine.data, whole.data, mine.bytes());
  if (mine.empty()) return;
  DataPlane& plane = data_plane_of(*state_);
  plane.settle(ncclAllGather(mine.data, whole.data, mine.bytes(), ncclUint8, plane.comm,
                             stream.state().stream),
               "all_gather");
}

void Communicator::broadcast(Stream& stream, TensorView in_out, int root) const {
  require(0 <= root && root < size(), ExitCode::internal, "broadcast from rank {} on {} ({} ranks)",
          root, name(), size());
  if (size() == 1 || in_out.empty()) return;
  DataPlane& plane = data_plane_of(*state_);
  plane.settle(ncclBroadcast(in_out.data, in_out.data, in_out.bytes(), ncclUint8, root, plane.comm,
                             stream.state().stream),
               "broadcast");
}

void Communicator::exchange(Stream& stream, std::span<const Transfer> transfers) const {
  for (const Transfer& t : transfers)
    require(0 <= t.peer && t.peer < size(), ExitCode::internal,
            "exchange on {}: peer {} in a group of {}", name(), t.peer, size());
  if (size() == 1) return copy_to_self(stream, transfers, name());
  run_group(stream, data_plane_of(*state_), transfers, "exchange");
}

void Communicator::all_to_all(Stream& stream, TensorView send, std::span<const int64_t> send_rows,
                              TensorView receive, std::span<const int64_t> receive_rows) const {
  const AllToAllPieces pieces(*state_, send, send_rows, receive, receive_rows);
  const RowPieces &out = pieces.out, &in = pieces.in;
  copy_own(stream, pieces.kept.data, pieces.place.data, pieces.kept.bytes());
  if (size() == 1) return;
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    transfers.push_back({Transfer::Direction::send, peer, out.of(peer)});
    transfers.push_back({Transfer::Direction::receive, peer, in.of(peer)});
  }
  run_group(stream, data_plane_of(*state_), transfers, "all_to_all");
}

}  // namespace trireme::inline TRIREME_BACKEND
