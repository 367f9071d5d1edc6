// Host copies of slices in one block of page-locked memory, so that their owner may change them
// while the copies are written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/tensor.hpp"
#include "trireme/device/device.hpp"

namespace trireme {

class Snapshot {
 public:
  // Takes `bytes` of page-locked memory and touches every page of it, so that the first copy is as
  // fast as the others. 0: none.
  explicit Snapshot(int64_t bytes);

  struct Parts {
    std::vector<GlobalSlice> copied;  // in this memory, until the next `take`
    std::vector<GlobalSlice> left;    // what did not fit, as given
    int64_t copied_bytes = 0;
  };
  // Local. Copies slices, in order, as long as they fit, and waits for the copies. The bytes of all
  // slices together are always enough memory.
  Parts take(Stream& stream, std::span<const GlobalSlice> slices);

  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  Buffer buffer_;
};

}  // namespace trireme
