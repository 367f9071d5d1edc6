// Slices seen from the host, a bounded window at a time: directly where the memory is host memory,
// through a pinned buffer where it is not.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/base/tensor.hpp"
#include "trireme/device/device.hpp"
#include "trireme/io/checkpoint.hpp"

namespace trireme::io {

class HostWindow {
 public:
  // Bytes of a window: small enough that a checksum and a write of it share the cache.
  static constexpr int64_t kBytes = int64_t{4} << 20;

  HostWindow(Stream& stream, SliceMemory memory)
      : stream_(stream), direct_(memory == SliceMemory::host || device_memory_is_host()) {
    if (!direct_) pinned_ = Buffer(static_cast<size_t>(2 * kBytes), Memory::pinned);
  }

  // Elements [first, first + count) of `local`, at most kBytes of them, until the next call but
  // one.
  std::span<const std::byte> read(const TensorView& local, int64_t first, int64_t count) {
    const TensorView part = local.range(first, first + count);
    if (direct_) return {part.data, part.bytes()};
    second_ = !second_;
    const std::span<std::byte> to(pinned_part(), part.bytes());
    copy_to_host(stream_, part, to);
    stream_.synchronize();
    return to;
  }

  // Where to put elements [first, first + count) of `local`; `filled` then brings them there. They
  // stay readable where they are put until the next call but one.
  std::span<std::byte> to_fill(const TensorView& local, int64_t first, int64_t count) {
    const TensorView part = local.range(first, first + count);
    second_ = !second_;
    return {direct_ ? part.data : pinned_part(), part.bytes()};
  }
  void filled(const TensorView& local, int64_t first, int64_t count) {
    if (direct_) return;
    const TensorView part = local.range(first, first + count);
    copy_to_device(stream_, {pinned_part(), part.bytes()}, part);
    stream_.synchronize();
  }

 private:
  std::byte* pinned_part() { return pinned_.data() + (second_ ? kBytes : 0); }

  Stream& stream_;
  bool direct_, second_ = false;
  Buffer pinned_;
};

}  // namespace trireme::io
