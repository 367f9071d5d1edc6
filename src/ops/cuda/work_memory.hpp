// Work memory of the operations on one stream: one block of fixed size, made at the first use on
// the stream and used by one operation after the other, in stream order.
#pragma once

#include <cstddef>

#include "device/cuda/stream_state.hpp"
#include "trireme/ops/gpu_work.hpp"

namespace trireme::inline TRIREME_BACKEND {

inline constexpr auto kWorkBytes = static_cast<size_t>(kGpuWorkBytes);

// The block of this stream, kWorkBytes long. Nothing in it survives the operation that asked for
// it.
inline std::byte* work_memory(Stream& stream) {
  const auto make = [] { return std::make_shared<Buffer>(kWorkBytes, Memory::device); };
  return stream.state().attached<Buffer>(Attachment::scratch, make).data();
}

}  // namespace trireme::inline TRIREME_BACKEND
