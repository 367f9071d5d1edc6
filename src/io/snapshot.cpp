// Packs slices behind one another, the wide element types first, so that each is aligned without
// padding.
#include "trireme/io/snapshot.hpp"

#include <algorithm>
#include <cstring>

namespace trireme {

Snapshot::Snapshot(int64_t bytes) : buffer_(static_cast<size_t>(bytes), Memory::pinned) {
  if (bytes > 0) std::memset(buffer_.data(), 0, buffer_.bytes());
}

Snapshot::Parts Snapshot::take(Stream& stream, std::span<const GlobalSlice> slices) {
  Parts parts;
  std::vector<GlobalSlice> ordered(slices.begin(), slices.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const GlobalSlice& slice) { return size_of(slice.local.dtype) == 4; });
  size_t used = 0;
  for (GlobalSlice& slice : ordered) {
    const size_t bytes = slice.local.bytes();
    if (bytes > buffer_.bytes() - used) {
      parts.left.push_back(std::move(slice));
      continue;
    }
    copy_to_host(stream, slice.local, {buffer_.data() + used, bytes});
    slice.local.data = buffer_.data() + used;
    used += bytes;
    parts.copied.push_back(std::move(slice));
  }
  stream.synchronize();
  parts.copied_bytes = static_cast<int64_t>(used);
  return parts;
}

}  // namespace trireme
