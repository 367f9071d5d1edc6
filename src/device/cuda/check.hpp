// Checks of CUDA calls. Every call is checked, with what it was for and where it stands in the
// source.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Throws Error(device) unless `status` is success: `what` says what was being done.
inline void check_cuda(cudaError_t status, std::string_view what,
                       std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) [[likely]]
    return;
  throw Error(
      ExitCode::device,
      fmt::format("CUDA, {}: {} ({}). The device or its driver cannot go on; run elsewhere if "
                  "this repeats",
                  what, cudaGetErrorString(status), cudaGetErrorName(status)),
      where);
}

}  // namespace trireme::inline TRIREME_BACKEND
