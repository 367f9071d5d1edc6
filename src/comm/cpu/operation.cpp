// Messages of one operation over MPI's non-blocking calls.
#include "comm/cpu/operation.hpp"

#include <algorithm>
#include <cstring>

#include "comm/mpi_check.hpp"

namespace trireme::inline TRIREME_BACKEND {

Buffer DataPlane::take(size_t bytes) {
  const auto fits = [bytes](const Buffer& b) { return b.bytes() >= bytes; };
  const auto found = std::find_if(spare.begin(), spare.end(), fits);
  if (found == spare.end()) {
    spare.clear();
    return Buffer(bytes, Memory::device);
  }
  Buffer taken = std::move(*found);
  spare.erase(found);
  return taken;
}

Operation::Operation(const Communicator::State& group, std::string_view call)
    : session_(group.session),
      plane_(group.data_plane),
      handle_(group.handle),
      message_bytes_(group.limits.message_bytes),
      what_(fmt::format("{} on {}", call, group.name)) {}

Operation::~Operation() {
  session_->remove(this);
  if (requests_.empty()) return;
  session_->abandoned = true;
  session_->kept.push_back(std::make_shared<Buffer>(std::move(scratch_)));
}

std::byte* Operation::scratch(size_t bytes) {
  scratch_ = plane_->take(bytes);
  return scratch_.data();
}

void Operation::send(const std::byte* from, size_t bytes, int peer, int tag) {
  for (size_t first = 0; first < bytes; first += message_bytes_) {
    const int count = static_cast<int>(std::min(message_bytes_, bytes - first));
    check_mpi(MPI_Isend(from + first, count, MPI_BYTE, peer, tag, handle_,
                        &requests_.emplace_back(MPI_REQUEST_NULL)),
              what_);
    expected_.push_back(-1);
  }
}

void Operation::receive(std::byte* to, size_t bytes, int peer, int tag) {
  for (size_t first = 0; first < bytes; first += message_bytes_) {
    const int count = static_cast<int>(std::min(message_bytes_, bytes - first));
    check_mpi(MPI_Irecv(to + first, count, MPI_BYTE, peer, tag, handle_,
                        &requests_.emplace_back(MPI_REQUEST_NULL)),
              what_);
    expected_.push_back(count);
  }
}

void Operation::broadcast(std::byte* in_out, size_t bytes, int root) {
  for (size_t first = 0; first < bytes; first += message_bytes_) {
    const int count = static_cast<int>(std::min(message_bytes_, bytes - first));
    check_mpi(MPI_Ibcast(in_out + first, count, MPI_BYTE, root, handle_,
                         &requests_.emplace_back(MPI_REQUEST_NULL)),
              what_);
    expected_.push_back(-1);
  }
}

bool Operation::messages_done() {
  if (requests_.empty()) return true;
  int all = 0;
  statuses_.resize(requests_.size());
  const int code =
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, statuses_.data());
  if (code == MPI_ERR_IN_STATUS)
    for (const MPI_Status& status : statuses_)
      if (status.MPI_ERROR != MPI_ERR_PENDING) check_mpi(status.MPI_ERROR, what_);
  check_mpi(code, what_);
  if (all == 0) return false;
  check_lengths();
  requests_.clear();
  expected_.clear();
  return true;
}

// A shorter message than awaited means that the ranks disagree on sizes or on the order of calls.
void Operation::check_lengths() const {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (expected_[i] < 0) continue;
    int arrived = 0;
    check_mpi(MPI_Get_count(&statuses_[i], MPI_BYTE, &arrived), "MPI_Get_count");
    require(arrived == expected_[i], ExitCode::internal,
            "{}: {} bytes came from rank {} where {} were awaited", what_, arrived,
            statuses_[i].MPI_SOURCE, expected_[i]);
  }
}

bool Operation::advance() {
  while (!done_) {
    if (!messages_done()) return false;
    if (next_step_ < steps_.size()) {
      steps_[next_step_++](*this);
      continue;
    }
    done_ = true;
    if (scratch_.bytes() > 0) plane_->spare.push_back(std::move(scratch_));
  }
  return true;
}

void Operation::start() {
  if (!advance()) session_->add(this);
}

void Operation::finish() {
  for (Patience patience; !done_; patience.pause()) session_->poll();
}

void require_connected(const Communicator::State& group) {
  require(group.data_plane != nullptr, ExitCode::internal,
          "the group \"{}\" was not connected to a device before data-plane calls", group.name);
}

void launch(Stream& stream, const std::shared_ptr<Operation>& operation,
            std::vector<MemoryRange> ranges) {
  Stream::State& on = stream.state();
  on.finish_conflicting(ranges);
  operation->start();
  if (on.immediate) operation->finish();
  if (operation->done()) return;
  on.push({.finish = [operation] { operation->finish(); },
           .test = [operation] { return operation->advance(); },
           .ranges = std::move(ranges)});
}

void copy_bytes(const std::byte* from, std::byte* to, size_t bytes) {
  if (from != to && bytes > 0) std::memmove(to, from, bytes);
}

}  // namespace trireme::inline TRIREME_BACKEND
