// Collectives and exchanges of tensor views on the CPU: MPI messages on host memory.
//
// Reductions are our own: every rank gets the others' copies of its piece and adds them in rank
// order. Two ranks can therefore never end with different bits, whatever the sizes, and no step of
// an MPI library's algorithm rounds in between. Bytes moved are those of a ring: (n-1)/n for each
// half.
#include <algorithm>

#include "comm/communicator_state.hpp"
#include "comm/cpu/operation.hpp"
#include "comm/cpu/reduction.hpp"
#include "device/cpu/stream_state.hpp"
#include "trireme/base/checked.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Pieces and rounds are multiples of this, so that loops over them stay aligned.
constexpr int64_t kAlignElements = 64;

void require_sums(const TensorView& view, std::string_view call) {
  require(view.dtype == DType::f32 || view.dtype == DType::bf16, ExitCode::internal,
          "{} reduces f32 and bf16 only, not {}", call, name_of(view.dtype));
}

// `whole` in consecutive pieces, one for each rank; `mine` receives this rank's.
struct Scatter {
  TensorView whole;
  int64_t piece = 0;  // elements of a piece; the last ones may be shorter
  std::byte* mine = nullptr;
  Reduce how = Reduce::sum;

  int64_t first(int rank) const { return std::min(whole.elements(), piece * rank); }
  int64_t count(int rank) const { return first(rank + 1) - first(rank); }
  std::byte* at(int64_t element) const {
    return whole.data + static_cast<size_t>(element) * size_of(whole.dtype);
  }
};

// Elements of a piece in one round of a reduction.
int64_t round_elements(const Communicator::State& group, DType type) {
  const size_t slots = static_cast<size_t>(group.size - 1);
  const auto fit = static_cast<int64_t>(group.limits.scratch_bytes / slots / size_of(type));
  return std::max(kAlignElements, fit / kAlignElements * kAlignElements);
}

// Appends the steps that leave in `job.mine` the reduction of this rank's pieces.
void add_scatter(const std::shared_ptr<Operation>& operation, const Communicator::State& group,
                 const Scatter& job, int tag) {
  const int rank = group.rank, size = group.size;
  const int64_t most =
      std::min(round_elements(group, job.whole.dtype), round_up(job.piece, kAlignElements));
  const size_t unit = size_of(job.whole.dtype);
  std::byte* const slots = operation->scratch(static_cast<size_t>(most * (size - 1)) * unit);
  const auto slot = [=](int peer) {
    return slots + static_cast<size_t>(most * (peer < rank ? peer : peer - 1)) * unit;
  };
  const auto cut = [=](int of, int64_t start) {
    return std::clamp<int64_t>(job.count(of) - start, 0, most);
  };
  for (int64_t start = 0; start < job.piece; start += most) {
    operation->then([=](Operation& op) {
      for_each_peer(rank, size, [&](int to, int from) {
        op.receive(slot(from), static_cast<size_t>(cut(rank, start)) * unit, from, tag);
        op.send(job.at(job.first(to) + start), static_cast<size_t>(cut(to, start)) * unit, to, tag);
      });
    });
    operation->then([=](Operation&) {
      std::vector<const std::byte*> parts(static_cast<size_t>(size));
      for (int r = 0; r < size; ++r)
        parts[static_cast<size_t>(r)] = r == rank ? job.at(job.first(rank) + start) : slot(r);
      reduce_in_order(job.whole.dtype, job.how, parts, cut(rank, start),
                      job.mine + static_cast<size_t>(start) * unit);
    });
  }
}

// Appends the step that spreads each rank's piece of `job.whole` to all.
void add_gather(const std::shared_ptr<Operation>& operation, const Communicator::State& group,
                const Scatter& job, int tag) {
  const size_t unit = size_of(job.whole.dtype);
  operation->then([=, rank = group.rank, size = group.size](Operation& op) {
    for_each_peer(rank, size, [&](int to, int from) {
      op.receive(job.at(job.first(from)), static_cast<size_t>(job.count(from)) * unit, from, tag);
      op.send(job.mine, static_cast<size_t>(job.count(rank)) * unit, to, tag);
    });
  });
}

// Small all-reduce: everybody's whole copy to everybody, then the same sum everywhere.
void add_one_step(const std::shared_ptr<Operation>& operation, const Communicator::State& group,
                  const TensorView& view, Reduce how, int tag) {
  const int rank = group.rank, size = group.size;
  const size_t bytes = view.bytes();
  std::byte* const slots = operation->scratch(bytes * static_cast<size_t>(size));
  const auto slot = [=](int peer) { return slots + bytes * static_cast<size_t>(peer); };
  operation->then([=](Operation& op) {
    for_each_peer(rank, size, [&](int to, int from) {
      op.receive(slot(from), bytes, from, tag);
      op.send(view.data, bytes, to, tag);
    });
  });
  operation->then([=](Operation&) {
    std::vector<const std::byte*> parts(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) parts[static_cast<size_t>(r)] = r == rank ? view.data : slot(r);
    reduce_in_order(view.dtype, how, parts, view.elements(), view.data);
  });
}

// Checks the shapes of reduce_scatter and all_gather.
void require_pieces(const Communicator::State& group, const TensorView& whole,
                    const TensorView& mine, std::string_view call) {
  require(whole.dtype == mine.dtype && whole.elements() == mine.elements() * group.size,
          ExitCode::internal, "{} on {} ({} ranks): whole {} {}, mine {} {}", call, group.name,
          group.size, whole.shape.text(), name_of(whole.dtype), mine.shape.text(),
          name_of(mine.dtype));
}

}  // namespace

void Communicator::connect(Device&, Links) {
  if (!state_->data_plane) state_->data_plane = std::make_shared<DataPlane>();
}

void Communicator::all_reduce(Stream& stream, TensorView in_out, Reduce how) const {
  require_sums(in_out, "all_reduce");
  if (size() == 1) return;
  require_connected(*state_);
  const int tag = state_->data_plane->next_tag();
  if (in_out.empty()) return;
  const auto operation = std::make_shared<Operation>(*state_, "all_reduce");
  const int64_t piece = round_up(ceil_div(in_out.elements(), size()), kAlignElements);
  if (in_out.bytes() * static_cast<size_t>(size()) <= state_->limits.one_step_bytes) {
    add_one_step(operation, *state_, in_out, how, tag);
  } else {
    Scatter job{in_out, piece, nullptr, how};
    job.mine = job.at(job.first(rank()));
    add_scatter(operation, *state_, job, tag);
    add_gather(operation, *state_, job, tag + 1);
  }
  launch(stream, operation, {write_of(in_out)});
}

void Communicator::reduce_scatter(Stream& stream, TensorView whole, TensorView mine) const {
  require_sums(whole, "reduce_scatter");
  require_pieces(*state_, whole, mine, "reduce_scatter");
  if (size() == 1) {
    stream.state().finish_conflicting(std::vector{read_of(whole), write_of(mine)});
    return copy_bytes(whole.data, mine.data, mine.bytes());
  }
  require_connected(*state_);
  const int tag = state_->data_plane->next_tag();
  if (mine.empty()) return;
  const auto operation = std::make_shared<Operation>(*state_, "reduce_scatter");
  add_scatter(operation, *state_, {whole, mine.elements(), mine.data, Reduce::sum}, tag);
  launch(stream, operation, {read_of(whole), write_of(mine)});
}

void Communicator::all_gather(Stream& stream, TensorView mine, TensorView whole) const {
  require_pieces(*state_, whole, mine, "all_gather");
  stream.state().finish_conflicting(std::vector{read_of(mine), write_of(whole)});
  const Scatter job{whole, mine.elements(), mine.data, Reduce::sum};
  copy_bytes(mine.data, job.at(job.first(rank())), mine.bytes());
  if (size() == 1) return;
  require_connected(*state_);
  const int tag = state_->data_plane->next_tag();
  if (mine.empty()) return;
  const auto operation = std::make_shared<Operation>(*state_, "all_gather");
  add_gather(operation, *state_, job, tag);
  launch(stream, operation, {read_of(mine), write_of(whole)});
}

void Communicator::broadcast(Stream& stream, TensorView in_out, int root) const {
  require(0 <= root && root < size(), ExitCode::internal, "broadcast from rank {} on {} ({} ranks)",
          root, name(), size());
  if (size() == 1) return;
  require_connected(*state_);
  if (in_out.empty()) return;
  const auto operation = std::make_shared<Operation>(*state_, "broadcast");
  operation->then([=](Operation& op) { op.broadcast(in_out.data, in_out.bytes(), root); });
  launch(stream, operation, {write_of(in_out)});
}

}  // namespace trireme::inline TRIREME_BACKEND
