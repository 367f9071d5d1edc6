// One data-plane operation in flight: messages, and local steps between them.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator_state.hpp"
#include "device/cpu/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Work memory of a communicator's operations, used again and again, and its count of collectives.
struct DataPlane {
  uint64_t collectives = 0;
  std::vector<Buffer> spare;

  Buffer take(size_t bytes);
  // First of the two tags of the next collective. Collectives match by number, since the steps of
  // two that overlap may interleave differently on two ranks; exchanges match by order. Tags stay
  // under 32767, the least that MPI promises.
  int next_tag() { return 1 + 2 * static_cast<int>(collectives++ % 8192); }
};
constexpr int kExchangeTag = 0;

// Steps run in order; each may post messages, and the next one runs when all of these are done.
// Destroying an operation that is not done abandons it: MPI then still holds the caller's buffers.
class Operation : public SteppedWork {
 public:
  using Step = std::function<void(Operation&)>;

  // `call` is for messages: "all_reduce". The group must be connected.
  Operation(const Communicator::State& group, std::string_view call);
  ~Operation() override;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void then(Step step) { steps_.push_back(std::move(step)); }
  // At most once. Freed (to the communicator) when the operation is done.
  std::byte* scratch(size_t bytes);

  // Called by steps. Messages beyond the limit are cut in pieces.
  void send(const std::byte* from, size_t bytes, int peer, int tag);
  void receive(std::byte* to, size_t bytes, int peer, int tag);
  void broadcast(std::byte* in_out, size_t bytes, int root);

  // Runs the first step. Before this, nothing else in flight moves the operation on: its memory may
  // still belong to an earlier one.
  void start();
  bool advance() override;
  bool done() const { return done_; }
  // Blocks; everything else in flight moves on too.
  void finish();

 private:
  bool messages_done();
  void check_lengths() const;

  std::shared_ptr<SessionState> session_;
  std::shared_ptr<DataPlane> plane_;
  MPI_Comm handle_;
  size_t message_bytes_;
  std::string what_;
  std::vector<Step> steps_;
  size_t next_step_ = 0;
  bool done_ = false;
  Buffer scratch_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> expected_;  // bytes of each receive; -1 for others
};

void require_connected(const Communicator::State& group);

// Starts `operation` once what conflicts with `ranges` on the stream is done; leaves it pending
// there or, on the compute stream, completes it.
void launch(Stream& stream, const std::shared_ptr<Operation>& operation,
            std::vector<MemoryRange> ranges);

inline MemoryRange read_of(const TensorView& view) {
  return {view.data, view.bytes(), false};
}
inline MemoryRange write_of(const TensorView& view) {
  return {view.data, view.bytes(), true};
}

// Nothing when both are the same place.
void copy_bytes(const std::byte* from, std::byte* to, size_t bytes);

// visit(to, from) for all other ranks, in an order that differs from rank to rank, so that no rank
// is everybody's first.
template <class Function>
void for_each_peer(int rank, int size, Function&& visit) {
  for (int d = 1; d < size; ++d) visit((rank + d) % size, (rank + size - d) % size);
}

}  // namespace trireme::inline TRIREME_BACKEND
