// Point-to-point data on the CPU: grouped exchanges and all-to-all. Every message of a call is
// posted before any is waited for, so that nothing depends on MPI buffering a send.

#include "comm/communicator_state.hpp"
#include "comm/cpu/operation.hpp"
#include "comm/row_pieces.hpp"
#include "device/cpu/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// The sends to and receives from this rank itself, in order.
std::vector<Transfer> own_transfers(std::span<const Transfer> transfers, int rank,
                                    Transfer::Direction direction) {
  std::vector<Transfer> found;
  for (const Transfer& t : transfers)
    if (t.peer == rank && t.direction == direction) found.push_back(t);
  return found;
}

void copy_own(const Communicator::State& group, std::span<const Transfer> transfers) {
  const auto sends = own_transfers(transfers, group.rank, Transfer::Direction::send);
  const auto receives = own_transfers(transfers, group.rank, Transfer::Direction::receive);
  require(sends.size() == receives.size(), ExitCode::internal,
          "exchange on {}: {} sends to itself, but {} receives", group.name, sends.size(),
          receives.size());
  for (size_t i = 0; i < sends.size(); ++i) {
    require(sends[i].view.bytes() == receives[i].view.bytes(), ExitCode::internal,
            "exchange on {}: rank {} sends itself {} bytes and awaits {}", group.name, group.rank,
            sends[i].view.bytes(), receives[i].view.bytes());
    copy_bytes(sends[i].view.data, receives[i].view.data, sends[i].view.bytes());
  }
}

}  // namespace

void Communicator::exchange(Stream& stream, std::span<const Transfer> transfers) const {
  std::vector<MemoryRange> ranges;
  for (const Transfer& t : transfers) {
    require(0 <= t.peer && t.peer < size(), ExitCode::internal,
            "exchange on {}: peer {} in a group of {}", name(), t.peer, size());
    ranges.push_back(t.direction == Transfer::Direction::send ? read_of(t.view) : write_of(t.view));
  }
  stream.state().finish_conflicting(ranges);
  copy_own(*state_, transfers);
  if (size() == 1) return;
  require_connected(*state_);
  const auto operation = std::make_shared<Operation>(*state_, "exchange");
  operation->then(
      [list = std::vector(transfers.begin(), transfers.end()), rank = rank()](Operation& op) {
        for (const Transfer& t : list) {
          if (t.peer == rank) continue;
          if (t.direction == Transfer::Direction::receive)
            op.receive(t.view.data, t.view.bytes(), t.peer, kExchangeTag);
          else
            op.send(t.view.data, t.view.bytes(), t.peer, kExchangeTag);
        }
      });
  launch(stream, operation, std::move(ranges));
}

void Communicator::all_to_all(Stream& stream, TensorView send, std::span<const int64_t> send_rows,
                              TensorView receive, std::span<const int64_t> receive_rows) const {
  const AllToAllPieces pieces(*state_, send, send_rows, receive, receive_rows);
  const RowPieces &out = pieces.out, &in = pieces.in;
  const std::vector<MemoryRange> ranges{read_of(send), write_of(receive)};
  stream.state().finish_conflicting(ranges);
  copy_bytes(pieces.kept.data, pieces.place.data, pieces.kept.bytes());
  if (size() == 1) return;
  require_connected(*state_);
  const int tag = state_->data_plane->next_tag();
  const auto operation = std::make_shared<Operation>(*state_, "all_to_all");
  operation->then([=, rank = rank(), size = size()](Operation& op) {
    for_each_peer(rank, size, [&](int to, int from) {
      op.receive(in.of(from).data, in.of(from).bytes(), from, tag);
      op.send(out.of(to).data, out.of(to).bytes(), to, tag);
    });
  });
  launch(stream, operation, ranges);
}

}  // namespace trireme::inline TRIREME_BACKEND
