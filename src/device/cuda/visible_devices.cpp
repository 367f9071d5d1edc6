// UUIDs of the GPUs that CUDA shows this process.
#include "trireme/device/visible_devices.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda/check.hpp"

namespace trireme::inline TRIREME_BACKEND {

std::vector<std::string> visible_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  // Without a driver the runtime says that the driver is too old. What is missing is said when the
  // device is opened.
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) return {};
  check_cuda(status, "looking for devices");
  std::vector<std::string> ids;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device), "reading the device's identity");
    std::string id = "GPU-";
    for (int i = 0; i < 16; ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) id += '-';
      id += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace trireme::inline TRIREME_BACKEND
