// A group of ranks. Owns its duplicate of an MPI communicator, and on GPUs an NCCL communicator
// that is bootstrapped over it.
//
// Control plane: small host values, MPI, blocking, collective over the group.
// Data plane: tensor views in stream order, collective; all ranks call in the same order. Sizes
// beyond 2^31 elements are cut into pieces. Types: f32 and bf16 (sums in f32 on the CPU). A group
// of one does nothing and costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/tensor.hpp"
#include "trireme/device/device.hpp"

namespace trireme::inline TRIREME_BACKEND {

enum class Reduce : uint8_t { sum, max };

// One message of a grouped exchange. A rank may send to itself when both directions are in the
// group.
struct Transfer {
  enum class Direction : uint8_t { send, receive } direction;
  int peer = 0;
  TensorView view;
};

// What a group is connected for: collective calls (and, between two ranks, exchanges), or exchanges
// between any two of its ranks as well.
enum class Links : uint8_t { collective, pairs };

class Communicator {
 public:
  // Takes over a handle made by MpiSession or split (an MPI_Comm), which it frees.
  struct State;
  explicit Communicator(std::unique_ptr<State> state);
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  std::string_view name() const;
  // Rank in the world of each member.
  const std::vector<int>& world_ranks() const;

  // Collective over this group. Ranks with equal colour form a group, ordered by key. A negative
  // colour makes a rank stand aside: it gets a group of one.
  Communicator split(int colour, int key, std::string_view name) const;
  // Prepares the data plane (NCCL bootstrap on GPUs). Collective; needed once before data-plane
  // calls. A group of more than two that exchanges beside other work asks for `pairs`: a link that
  // is made at its first use holds the host until running kernels end.
  void connect(Device& device, Links links = Links::collective);

  // --- control plane
  void barrier() const;
  double sum(double value) const;
  double max(double value) const;
  double min(double value) const;
  int64_t sum(int64_t value) const;
  int64_t max(int64_t value) const;
  int64_t min(int64_t value) const;
  bool all(bool value) const;
  bool any(bool value) const;
  void sum_each(std::span<uint64_t> values) const;  // modulo 2^64, in place
  void broadcast(std::span<std::byte> bytes, int root) const;
  std::string broadcast(const std::string& text, int root) const;
  // Everybody's bytes at every rank, by rank.
  std::vector<std::string> gather_all(const std::string& bytes) const;
  // Throws the same Error on every rank when `ok` is false on any: the text of the first such rank.
  void require_all(bool ok, ExitCode code, const std::string& text,
                   std::source_location where = std::source_location::current()) const;

  // --- data plane, on `stream`
  void all_reduce(Stream& stream, TensorView in_out, Reduce how = Reduce::sum) const;
  // whole [size * m, ...] -> mine [m, ...], the piece of this rank summed over the group. `mine`
  // may be this rank's own piece of `whole` (in place).
  void reduce_scatter(Stream& stream, TensorView whole, TensorView mine) const;
  // mine [m, ...] -> whole [size * m, ...]. `mine` may be this rank's own piece of `whole`.
  void all_gather(Stream& stream, TensorView mine, TensorView whole) const;
  void broadcast(Stream& stream, TensorView in_out, int root) const;
  // Rows to and from each peer: counts in rows of the views, laid out by peer.
  void all_to_all(Stream& stream, TensorView send, std::span<const int64_t> send_rows,
                  TensorView receive, std::span<const int64_t> receive_rows) const;
  // A group of sends and receives that cannot deadlock among themselves.
  void exchange(Stream& stream, std::span<const Transfer> transfers) const;
  // Lets pending communication move on while the host computes (MPI has no progress of its own).
  void progress() const;

  // Points to the underlying MPI_Comm, for HDF5's file access only.
  const void* native_mpi() const;
  // For the code of this folder.
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace trireme::inline TRIREME_BACKEND
