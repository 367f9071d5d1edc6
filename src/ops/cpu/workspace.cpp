// Sizes and takes the work memory of a stream.
#include "ops/cpu/workspace.hpp"

#include <omp.h>

#include <algorithm>

#include "device/cpu/stream_state.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

size_t workspace_bytes() {
  const int64_t threads = omp_get_max_threads() * kThreadFloats;
  return static_cast<size_t>(std::max(threads, 3 * kProductTile * kProductTile)) * sizeof(float);
}

Workspace::Workspace(Stream& stream) : threads_(omp_get_max_threads()) {
  Buffer& block = stream.state().workspace;
  if (block.bytes() < workspace_bytes()) {
    block = Buffer();
    block = Buffer(workspace_bytes(), Memory::device);
  }
  data_ = reinterpret_cast<float*>(block.data());
}

}  // namespace trireme::inline TRIREME_BACKEND
