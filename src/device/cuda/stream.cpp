// Streams and events of the CUDA twin.
#include <chrono>
#include <thread>
#include <utility>

#include "device/cuda/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Between two looks at the peers while the host waits.
constexpr std::chrono::milliseconds kCheckEvery{10};

}  // namespace

void WatchList::add(const std::shared_ptr<Watched>& item) {
  std::erase_if(items, [](const std::weak_ptr<Watched>& w) { return w.expired(); });
  items.push_back(item);
}

void WatchList::check() {
  for (const std::weak_ptr<Watched>& item : items)
    if (const std::shared_ptr<Watched> alive = item.lock()) alive->check();
}

Stream::State::State(std::string_view stream_name, int device_index, int priority,
                     std::shared_ptr<WatchList> watch_list)
    : name(stream_name), device(device_index), watched(std::move(watch_list)) {
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
             fmt::format("making stream '{}'", name));
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device),
             "reading the number of multiprocessors");
  multiprocessors = value;
  check_cuda(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "reading the shared memory of a block");
  shared_memory_limit = static_cast<size_t>(value);
}

// A destructor cannot throw, and after a fatal device error every release fails: results are
// unused.
Stream::State::~State() {
  attachments.fill(nullptr);
  static_cast<void>(cudaStreamDestroy(stream));
}

Event::State::State() {
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
}
Event::State::~State() {
  static_cast<void>(cudaEventDestroy(event));
}

Event::Event() = default;
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

Stream::Stream(std::unique_ptr<State> state) : state_(std::move(state)) {}
Stream::~Stream() = default;

void Stream::record(Event& event) {
  if (!event.state_) event.state_ = std::make_unique<Event::State>();
  check_cuda(cudaEventRecord(event.state_->event, state_->stream),
             fmt::format("recording an event on stream '{}'", state_->name));
}

void Stream::wait(const Event& event) {
  if (event.state() == nullptr) return;
  check_cuda(cudaStreamWaitEvent(state_->stream, event.state()->event, 0),
             fmt::format("making stream '{}' wait for an event", state_->name));
}

// With peers involved the wait is a poll, since work on the device never ends when a peer is lost.
void Stream::synchronize() {
  const std::string what = fmt::format("waiting for stream '{}'", state_->name);
  if (state_->watched->items.empty())
    return check_cuda(cudaStreamSynchronize(state_->stream), what);
  using Clock = std::chrono::steady_clock;
  auto next_check = Clock::now() + kCheckEvery;
  while (true) {
    const cudaError_t status = cudaStreamQuery(state_->stream);
    if (status != cudaErrorNotReady) return check_cuda(status, what);
    std::this_thread::yield();
    if (Clock::now() < next_check) continue;
    state_->watched->check();
    next_check = Clock::now() + kCheckEvery;
  }
}

}  // namespace trireme::inline TRIREME_BACKEND
