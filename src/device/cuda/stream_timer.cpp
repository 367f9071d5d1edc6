// Times on a stream by pairs of events, which are used again once they are read.
#include <deque>
#include <memory>

#include "device/cuda/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// An event that keeps the time at which the device passed it.
class Mark {
 public:
  Mark() { check_cuda(cudaEventCreate(&event_), "making an event that keeps the time"); }
  ~Mark() { static_cast<void>(cudaEventDestroy(event_)); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void record(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "marking the time on a stream");
  }
  // Seconds from here to a later mark, which this waits for.
  double seconds_to(const Mark& later) const {
    check_cuda(cudaEventSynchronize(later.event_), "waiting for a mark on a stream");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, event_, later.event_),
               "reading the time between two marks");
    return 1e-3 * double{milliseconds};
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Pair {
  Mark start, stop;
};

}  // namespace

struct StreamTimer::State {
  std::deque<Pair> pairs;
  size_t used = 0;
  double seconds = 0;

  // Adds the pairs that are not read yet.
  void read() {
    for (size_t i = 0; i < used; ++i) seconds += pairs[i].start.seconds_to(pairs[i].stop);
    used = 0;
  }
};

StreamTimer::StreamTimer() = default;
StreamTimer::~StreamTimer() = default;
StreamTimer::StreamTimer(StreamTimer&&) noexcept = default;
StreamTimer& StreamTimer::operator=(StreamTimer&&) noexcept = default;

void StreamTimer::switch_on(bool on) {
  state_ = on ? std::make_unique<State>() : nullptr;
}

void StreamTimer::start(Stream& stream) {
  if (!state_) return;
  if (state_->used == state_->pairs.size()) state_->pairs.emplace_back();
  state_->pairs[state_->used].start.record(stream.state().stream);
}

void StreamTimer::stop(Stream& stream) {
  if (state_) state_->pairs[state_->used++].stop.record(stream.state().stream);
}

double StreamTimer::seconds() {
  if (!state_) return 0;
  state_->read();
  return state_->seconds;
}

}  // namespace trireme::inline TRIREME_BACKEND
