#include "trireme/ops/startup.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include "ops/cuda/attention_fused.hpp"

namespace trireme::inline TRIREME_BACKEND {

// The libraries of a GPU choose their kernels for the device that they run on.
void prepare_process(int, char**) {}

std::string math_description() {
  const size_t version = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}, {}", version / 10000, version / 100 % 100, version % 100,
                     attention_description());
}

}  // namespace trireme::inline TRIREME_BACKEND
