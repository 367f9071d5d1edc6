// One GPU as a device: chosen by the rank's place on its host, with its streams.
#include "trireme/device/device.hpp"

#include <cuda_runtime_api.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <string>

#include "device/cuda/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Dense peak rates without sparsity, FLOP/s, from the vendor's data sheets: bf16 with f32
// accumulation, tf32, and f32 outside the tensor cores. The first entry whose text is in the
// device's name counts.
struct Peak {
  std::string_view name;
  double bf16, tf32, f32;
};
constexpr std::array kPeaks = {
    Peak{"B300", 2250e12, 1125e12, 75e12},       Peak{"GB200", 2500e12, 1250e12, 80e12},
    Peak{"B200", 2250e12, 1125e12, 75e12},       Peak{"GH200", 989.4e12, 494.7e12, 67e12},
    Peak{"H200 NVL", 835.5e12, 417.7e12, 60e12}, Peak{"H200", 989.4e12, 494.7e12, 67e12},
    Peak{"H20", 148e12, 74e12, 44e12},           Peak{"H100 NVL", 835.5e12, 417.7e12, 60e12},
    Peak{"H100 PCIe", 756e12, 378e12, 51e12},    Peak{"H800", 989.4e12, 494.7e12, 67e12},
    Peak{"H100", 989.4e12, 494.7e12, 67e12},     Peak{"A100", 312e12, 156e12, 19.5e12},
    Peak{"A800", 312e12, 156e12, 19.5e12},       Peak{"L40S", 362e12, 183e12, 91.6e12},
};

// Streams that share a hardware queue wait for each other; with pipeline edges there are more than
// the 8 queues of the default. The clients of a multi-process service have under a hundred between
// them. Read when CUDA starts.
int queues(int ranks) {
  constexpr int kMost = 32, kFewest = 8, kOfService = 64;
  const bool service = std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
  return service ? std::clamp(kOfService / std::max(1, ranks), kFewest, kMost) : kMost;
}

int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  // Without a driver the runtime says that the driver is too old.
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver)
    count = 0;
  else
    check_cuda(status, "looking for devices");
  require(
      count > 0, ExitCode::device,
      "no CUDA device is visible here (CUDA_VISIBLE_DEVICES is {}); use a host with a GPU or the "
      "program trireme-cpu",
      std::getenv("CUDA_VISIBLE_DEVICES") == nullptr ? "not set"
                                                     : std::getenv("CUDA_VISIBLE_DEVICES"));
  return count;
}

}  // namespace

struct Device::State {
  int device = 0;
  int devices = 1;
  int sharing = 1;  // ranks of this host that use the same device
  bool allow_tf32 = false;
  std::string name;
  int normal_priority = 0, high_priority = 0;
  std::shared_ptr<WatchList> watched = std::make_shared<WatchList>();
  std::deque<Stream> streams;  // a deque keeps references valid

  Stream& add(std::string_view stream_name, int priority) {
    auto made = std::make_unique<Stream::State>(stream_name, device, priority, watched);
    made->allow_tf32 = allow_tf32;
    return streams.emplace_back(std::move(made));
  }
};

Device::Device(const DeviceOptions& options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  // A kernel that is loaded at its first use may wait for running ones, and one of those for a
  // peer.
  if (options.ranks > 1) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(queues(options.node_ranks)).c_str(), 0);
  s.devices = count_devices();
  s.device = options.node_rank % s.devices;
  s.sharing = (options.node_ranks - s.device + s.devices - 1) / s.devices;
  s.allow_tf32 = options.allow_tf32;
  check_cuda(cudaSetDevice(s.device), fmt::format("using device {}", s.device));
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, s.device), "reading the device's properties");
  s.name = properties.name;
  require(properties.major >= 8, ExitCode::device,
          "device {} ({}) has compute capability {}.{}; Trireme needs 8.0 or newer", s.device,
          s.name, properties.major, properties.minor);
  if (options.threads > 0) omp_set_num_threads(options.threads);
  check_cuda(cudaDeviceGetStreamPriorityRange(&s.normal_priority, &s.high_priority),
             "reading the range of stream priorities");
  s.add("compute", s.normal_priority);
  s.add("communication", s.high_priority);
  s.add("copy", s.normal_priority);
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
  return state_->add(name, state_->high_priority);
}

std::string Device::description() const {
  std::string text =
      fmt::format("{}, device {} of {}", state_->name, state_->device, state_->devices);
  if (state_->sharing > 1) text += fmt::format(", shared by {} ranks", state_->sharing);
  return text;
}

size_t Device::free_bytes() const {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "reading the free device memory");
  return free;
}
size_t Device::total_bytes() const {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "reading the device memory");
  return total;
}

double Device::peak_flops(DType type) const {
  const auto found = std::find_if(kPeaks.begin(), kPeaks.end(), [&](const Peak& peak) {
    return state_->name.find(peak.name) != std::string::npos;
  });
  if (found == kPeaks.end()) return 0;
  if (type == DType::bf16) return found->bf16;
  if (type == DType::f32) return state_->allow_tf32 ? found->tf32 : found->f32;
  return 0;
}

}  // namespace trireme::inline TRIREME_BACKEND
