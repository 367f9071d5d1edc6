// Memory of the CPU twin: blocks from the host's allocator, copies at once.
//
// Blocks are never cleared. With TRIREME_POISON_MEMORY set in the environment, as the tests do,
// they are filled with bytes that read as NaN in f32 and bf16, so that a use before a write is
// seen.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "device/cpu/stream_state.hpp"
#include "trireme/base/checked.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Long streaming copies are cut into pieces of this size, one for each turn of a thread.
constexpr size_t kCopyPiece = size_t{1} << 20;

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  const int64_t pieces = ceil_div(static_cast<int64_t>(bytes), static_cast<int64_t>(kCopyPiece));
#pragma omp parallel for schedule(static) if (pieces > 4)
  for (int64_t i = 0; i < pieces; ++i) {
    const size_t first = static_cast<size_t>(i) * kCopyPiece;
    std::memcpy(to + first, from + first, std::min(kCopyPiece, bytes - first));
  }
}

}  // namespace

std::string_view backend_name() {
  return "cpu";
}
bool device_memory_is_host() {
  return true;
}

Buffer::Buffer(size_t bytes, Memory where) : bytes_(bytes), where_(where) {
  if (bytes == 0) return;
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : Arena::kAlignment;
  void* block = nullptr;
  require(
      posix_memalign(&block, alignment, bytes) == 0, ExitCode::bad_config,
      "this host cannot give {} bytes of memory; use more ranks or hosts, a smaller micro-batch or "
      "recomputation ('trireme plan' prints the need)",
      bytes);
  if (alignment == kHugePage) madvise(block, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  if (std::getenv("TRIREME_POISON_MEMORY") != nullptr) std::memset(block, 0xFF, bytes);
  data_ = static_cast<std::byte*>(block);
}

Buffer::~Buffer() {
  std::free(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      where_(other.where_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    std::free(data_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    where_ = other.where_;
  }
  return *this;
}

void copy(Stream&, TensorView from, TensorView to) {
  require(from.dtype == to.dtype && from.elements() == to.elements(), ExitCode::internal,
          "copy of {} {} to {} {}: types and element counts must be equal", name_of(from.dtype),
          from.shape.text(), name_of(to.dtype), to.shape.text());
  copy_bytes(to.data, from.data, from.bytes());
}

void copy_to_host(Stream&, TensorView from, std::span<std::byte> to) {
  require(from.bytes() == to.size(), ExitCode::internal, "copy of {} bytes to {} host bytes",
          from.bytes(), to.size());
  copy_bytes(to.data(), from.data, to.size());
}

void copy_to_device(Stream&, std::span<const std::byte> from, TensorView to) {
  require(to.bytes() == from.size(), ExitCode::internal, "copy of {} host bytes to {} bytes",
          from.size(), to.bytes());
  copy_bytes(to.data, from.data(), from.size());
}

void fill_zero(Stream&, TensorView view) {
  const size_t bytes = view.bytes();
  const int64_t pieces = ceil_div(static_cast<int64_t>(bytes), static_cast<int64_t>(kCopyPiece));
#pragma omp parallel for schedule(static) if (pieces > 4)
  for (int64_t i = 0; i < pieces; ++i) {
    const size_t first = static_cast<size_t>(i) * kCopyPiece;
    std::memset(view.data + first, 0, std::min(kCopyPiece, bytes - first));
  }
}

}  // namespace trireme::inline TRIREME_BACKEND
