// Streams of the CPU twin: operations run at once, only communication is pending.
#include <algorithm>
#include <chrono>
#include <utility>

#include "device/cpu/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

bool any_conflict(std::span<const MemoryRange> a, std::span<const MemoryRange> b) {
  for (const MemoryRange& x : a)
    for (const MemoryRange& y : b)
      if (conflict(x, y)) return true;
  return false;
}

}  // namespace

bool conflict(const MemoryRange& a, const MemoryRange& b) {
  if (a.bytes == 0 || b.bytes == 0 || !(a.written || b.written)) return false;
  const auto a_first = reinterpret_cast<uintptr_t>(a.first);
  const auto b_first = reinterpret_cast<uintptr_t>(b.first);
  return a_first < b_first + b.bytes && b_first < a_first + a.bytes;
}

void Stream::State::finish_conflicting(std::span<const MemoryRange> ranges) {
  for (size_t i = 0; i < pending.size();) {
    if (!any_conflict(pending[i].operation.ranges, ranges)) {
      ++i;
      continue;
    }
    PendingOperation operation = std::move(pending[i].operation);
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
    operation.finish();
  }
}

uint64_t Stream::State::push(PendingOperation operation) {
  for (const Entry& entry : pending)
    require(!any_conflict(entry.operation.ranges, operation.ranges), ExitCode::internal,
            "stream '{}': an operation was started on memory that operation {} still uses", name,
            entry.number);
  pending.push_back({++last_number, std::move(operation)});
  return last_number;
}

void Stream::State::finish_through(uint64_t mark) {
  while (!pending.empty() && pending.front().number <= mark) {
    PendingOperation operation = std::move(pending.front().operation);
    pending.pop_front();
    operation.finish();
  }
}

bool Stream::State::progress() {
  for (size_t i = 0; i < pending.size();) {
    if (pending[i].operation.test()) {
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return pending.empty();
}

Event::Event() = default;
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

Stream::Stream(std::unique_ptr<State> state) : state_(std::move(state)) {}

// Drops what is pending: a stream may be destroyed while an error unwinds, where waiting for a peer
// could last for ever.
Stream::~Stream() = default;

void Stream::record(Event& event) {
  if (!event.state_) event.state_ = std::make_unique<Event::State>();
  *event.state_ = {state_.get(), state_->tail()};
}

void Stream::wait(const Event& event) {
  if (event.state() != nullptr) event.state()->stream->finish_through(event.state()->mark);
}

void Stream::synchronize() {
  state_->finish_all();
}

struct StreamTimer::State {
  std::chrono::steady_clock::time_point started;
  double seconds = 0;
};

StreamTimer::StreamTimer() = default;
StreamTimer::~StreamTimer() = default;
StreamTimer::StreamTimer(StreamTimer&&) noexcept = default;
StreamTimer& StreamTimer::operator=(StreamTimer&&) noexcept = default;

void StreamTimer::switch_on(bool on) {
  state_ = on ? std::make_unique<State>() : nullptr;
}

void StreamTimer::start(Stream&) {
  if (state_) state_->started = std::chrono::steady_clock::now();
}

void StreamTimer::stop(Stream&) {
  if (!state_) return;
  const auto now = std::chrono::steady_clock::now();
  state_->seconds += std::chrono::duration<double>(now - state_->started).count();
}

double StreamTimer::seconds() {
  return state_ ? state_->seconds : 0;
}

}  // namespace trireme::inline TRIREME_BACKEND
