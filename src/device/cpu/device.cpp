// The CPU as a device: its threads, streams and memory.
#include "trireme/device/device.hpp"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <deque>

#include "device/cpu/processors.hpp"
#include "device/cpu/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

struct Device::State {
  int threads = 1;
  std::deque<Stream> streams;  // a deque keeps references valid

  Stream& add(std::string_view name) {
    return streams.emplace_back(std::make_unique<Stream::State>(name));
  }
};

namespace {

// An explicit request first, then OMP_NUM_THREADS as OpenMP read it, then this rank's part of the
// cores.
int choose_threads(const DeviceOptions& options) {
  if (options.threads > 0) return options.threads;
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return omp_get_max_threads();
  return std::max(1, usable_cores() / ranks_sharing_cores(options.node_ranks));
}

}  // namespace

Device::Device(const DeviceOptions& options) : state_(std::make_unique<State>()) {
  state_->threads = choose_threads(options);
  omp_set_num_threads(state_->threads);
  for (const char* name : {"compute", "communication", "copy"}) state_->add(name);
}

Device::~Device() = default;

Stream& Device::compute() {
  return state_->streams[0];
}
Stream& Device::communication() {
  return state_->streams[1];
}
Stream& Device::copy() {
  return state_->streams[2];
}
Stream& Device::new_stream(std::string_view name) {
  return state_->add(name);
}

std::string Device::description() const {
  return fmt::format("{} thread{} on {}", state_->threads, state_->threads == 1 ? "" : "s",
                     processor_name());
}

size_t Device::free_bytes() const {
  return host_memory().free;
}
size_t Device::total_bytes() const {
  return host_memory().total;
}
double Device::peak_flops(DType) const {
  return 0;
}

}  // namespace trireme::inline TRIREME_BACKEND
