// Small host values over MPI. Calls block, but communication in flight on streams keeps moving.
//
// Extremes are taken on signed and floating types only: some releases of Open MPI compare unsigned
// 64-bit values as signed (open-mpi/ompi#10276).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "comm/communicator_state.hpp"
#include "comm/mpi_check.hpp"
#include "trireme/base/checked.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

template <class T>
void reduce(const Communicator::State& state, std::span<T> values, MPI_Datatype type, MPI_Op op) {
  if (state.size == 1) return;
  const size_t most = std::max<size_t>(1, state.limits.message_bytes / sizeof(T));
  for (size_t first = 0; first < values.size(); first += most) {
    const size_t count = std::min(most, values.size() - first);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data() + first, static_cast<int>(count), type, op,
                             state.handle, &request),
              "MPI_Iallreduce");
    state.session->complete(request, "MPI_Iallreduce");
  }
}

int64_t reduce_one(const Communicator::State& state, int64_t value, MPI_Op op) {
  reduce(state, std::span(&value, 1), MPI_INT64_T, op);
  return value;
}

// MPI leaves open what an extreme of NaN is, and ranks may then disagree. Here NaN wins everywhere.
double largest(const Communicator::State& state, double value) {
  const bool nan = std::isnan(value);
  std::array<double, 2> pair{nan ? 1.0 : 0.0,
                             nan ? -std::numeric_limits<double>::infinity() : value};
  reduce(state, std::span<double>(pair), MPI_DOUBLE, MPI_MAX);
  return pair[0] > 0 ? std::numeric_limits<double>::quiet_NaN() : pair[1];
}

void check_root(const Communicator::State& state, int root) {
  require(0 <= root && root < state.size, ExitCode::internal,
          "broadcast from rank {} in the group \"{}\" of {} ranks", root, state.name, state.size);
}

// Who failed, as every rank of the group knows it.
struct Agreement {
  int first = 0;            // lowest failing rank; the group's size when none failed
  bool everywhere = false;  // every rank failed
};

Agreement agree(const Communicator::State& state, bool ok) {
  std::array<int64_t, 2> lowest{ok ? state.size : state.rank, ok ? -1 : 0};
  reduce(state, std::span<int64_t>(lowest), MPI_INT64_T, MPI_MIN);
  return {static_cast<int>(lowest[0]), lowest[1] == 0};
}

}  // namespace

void Communicator::barrier() const {
  if (state_->size == 1) return;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(state_->handle, &request), "MPI_Ibarrier");
  state_->session->complete(request, "MPI_Ibarrier");
}

double Communicator::sum(double value) const {
  reduce(*state_, std::span(&value, 1), MPI_DOUBLE, MPI_SUM);
  return value;
}
double Communicator::max(double value) const {
  return largest(*state_, value);
}
double Communicator::min(double value) const {
  return -largest(*state_, -value);
}
int64_t Communicator::sum(int64_t value) const {
  return reduce_one(*state_, value, MPI_SUM);
}
int64_t Communicator::max(int64_t value) const {
  return reduce_one(*state_, value, MPI_MAX);
}
int64_t Communicator::min(int64_t value) const {
  return reduce_one(*state_, value, MPI_MIN);
}
bool Communicator::all(bool value) const {
  return min(int64_t{value}) != 0;
}
bool Communicator::any(bool value) const {
  return max(int64_t{value}) != 0;
}

void Communicator::sum_each(std::span<uint64_t> values) const {
  reduce(*state_, values, MPI_UINT64_T, MPI_SUM);
}

void Communicator::broadcast(std::span<std::byte> bytes, int root) const {
  check_root(*state_, root);
  if (state_->size == 1) return;
  for (size_t first = 0; first < bytes.size(); first += state_->limits.message_bytes) {
    const size_t count = std::min(state_->limits.message_bytes, bytes.size() - first);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(bytes.data() + first, static_cast<int>(count), MPI_BYTE, root,
                         state_->handle, &request),
              "MPI_Ibcast");
    state_->session->complete(request, "MPI_Ibcast");
  }
}

std::string Communicator::broadcast(const std::string& text, int root) const {
  int64_t length = static_cast<int64_t>(text.size());
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string result = rank() == root ? text : std::string(static_cast<size_t>(length), '\0');
  broadcast(std::as_writable_bytes(std::span(result)), root);
  return result;
}

// Rounds: in each, every rank gives its next bytes, few enough that all of them together stay under
// the limit of one message.
std::vector<std::string> Communicator::gather_all(const std::string& bytes) const {
  const auto ranks = static_cast<size_t>(size());
  if (ranks == 1) return {bytes};
  std::vector<int64_t> lengths(ranks);
  const int64_t mine = static_cast<int64_t>(bytes.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&mine, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, state_->handle,
                           &request),
            "MPI_Iallgather");
  state_->session->complete(request, "MPI_Iallgather");

  const auto chunk =
      static_cast<int64_t>(std::max<size_t>(1, state_->limits.message_bytes / ranks));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::string> result(ranks);
  for (int64_t first = 0; first < longest; first += chunk) {
    std::vector<int> counts(ranks), starts(ranks);
    int total = 0;
    for (size_t r = 0; r < ranks; ++r) {
      starts[r] = total;
      counts[r] = static_cast<int>(std::clamp<int64_t>(lengths[r] - first, 0, chunk));
      total += counts[r];
    }
    std::string round(static_cast<size_t>(total), '\0');
    const char* from = bytes.data() + std::min(first, mine);
    check_mpi(MPI_Iallgatherv(from, counts[static_cast<size_t>(rank())], MPI_BYTE, round.data(),
                              counts.data(), starts.data(), MPI_BYTE, state_->handle, &request),
              "MPI_Iallgatherv");
    state_->session->complete(request, "MPI_Iallgatherv");
    for (size_t r = 0; r < ranks; ++r)
      result[r].append(round, static_cast<size_t>(starts[r]), static_cast<size_t>(counts[r]));
  }
  return result;
}

void Communicator::require_all(bool ok, ExitCode code, const std::string& text,
                               std::source_location where) const {
  const Agreement verdict = agree(*state_, ok);
  if (verdict.first == size()) return;
  int64_t agreed_code = static_cast<int64_t>(code);
  broadcast(std::as_writable_bytes(std::span(&agreed_code, 1)), verdict.first);
  const std::string words = broadcast(text, verdict.first);
  const std::string host = broadcast(state_->session->host, verdict.first);
  std::string who;
  if (!verdict.everywhere)
    who = fmt::format(" on rank {} ({})", world_ranks()[static_cast<size_t>(verdict.first)], host);
  throw AgreedError(static_cast<ExitCode>(agreed_code), words, who, size() == state_->session->size,
                    where);
}

void Communicator::progress() const {
  state_->session->poll();
  if (state_->size == 1) return;
  int arrived = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, state_->handle, &arrived, MPI_STATUS_IGNORE),
            "MPI_Iprobe");
}

}  // namespace trireme::inline TRIREME_BACKEND
