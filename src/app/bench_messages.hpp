// The operations that `trireme bench comm` times, on one axis of the process grid: their data, one
// call, and what must be in memory after it.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "app/bench_data.hpp"
#include "trireme/comm/process_grid.hpp"

namespace trireme::app {

enum class Exchange : uint8_t { all_reduce, reduce_scatter, all_gather, exchange };
const char* name_of(Exchange what);
// Bytes over the busiest link as a share of the message, the convention of nccl-tests (its
// doc/PERFORMANCE.md): 2 (n-1)/n for all-reduce, (n-1)/n for reduce-scatter and all-gather, 1 for
// one direction of an exchange.
double bus_factor(Exchange what, int ranks);

// One kind of message on one axis. All groups of the axis talk at the same time, as in training.
struct MessageKind {
  std::string axis;
  Exchange what = Exchange::all_reduce;
  int ranks = 1;
};
// Every kind of the grid: the three collectives on each axis of more than one rank, and for the
// pipeline an exchange in which both ends of every edge send and receive at once.
std::vector<MessageKind> message_kinds(const ProcessGrid& grid);

// Buffers for messages up to a size. Each rank sends zeros and ones of its own, so that sums are
// exact and any lost, doubled or misplaced piece shows.
class Messages {
 public:
  Messages(const ProcessGrid& grid, Device& device, DType type, int64_t most_bytes);

  // The message of at least `bytes` that divides by the ranks. Bytes are those of the whole: the
  // buffer that is reduced, scattered or gathered, and what one end of an edge sends.
  int64_t elements(const MessageKind& kind, int64_t bytes) const;
  // Collective over the axis, one call in stream order.
  void call(const MessageKind& kind, int64_t elements);
  // Restores what a call changes in place.
  void reset(int64_t elements);
  void synchronize();
  // Poisons, calls and checks on the host. Collective; "" or what is wrong on this rank.
  std::string fault(const MessageKind& kind, int64_t elements);
  DType type() const { return sent_.dtype; }

 private:
  const Communicator& group(const MessageKind& kind) const;
  std::string fault_of(const MessageKind& kind, TensorView found,
                       const std::function<float(int64_t)>& expected);
  std::string exchange_fault(const MessageKind& kind, int64_t elements);
  bool has_next() const { return grid_.here().pp + 1 < grid_.shape().pp; }
  bool has_previous() const { return grid_.here().pp > 0; }

  const ProcessGrid& grid_;
  Stream& stream_;
  std::array<Buffer, 3> memory_;
  TensorView sent_, received_, other_;  // sent_ never changes
};

}  // namespace trireme::app
