// Work memory of the operations on one stream: one block of fixed size, made at the first use on
// the stream and used by one operation after the other, in stream order.
#pragma once

#include <cstddef>

#include "device/cuda/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

inline constexpr size_t kWorkBytes = size_t{64} << 20;

// The block of this stream, kWorkBytes long. Nothing in it survives the operation that asked for
// it.
inline std::byte* work_memory(Stream& stream) {
  const auto make = [] { return std::make_shared<Buffer>(kWorkBytes, Memory::device); };
  return stream.state().attached<Buffer>(Attachment::scratch, make).data();
}

}  // namespace trireme::inline TRIREME_BACKEND
