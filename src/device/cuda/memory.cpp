// Memory of the CUDA twin: plain cudaMalloc and page-locked host blocks, copies in stream order.
//
// Blocks are never cleared. With TRIREME_POISON_MEMORY set in the environment, as the tests do,
// they are filled with bytes that read as NaN in f32 and bf16, so that a use before a write is
// seen.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "device/cuda/stream_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

std::byte* take_device(size_t bytes) {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "reading the free device memory");
  void* block = nullptr;
  cudaError_t status = cudaErrorMemoryAllocation;
  if (bytes <= free) status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    fail(
        ExitCode::bad_config,
        "the device cannot give {} bytes, {} of {} are free; use more ranks, a smaller micro-batch "
        "or recomputation ('trireme plan' prints the need)",
        bytes, free, total);
  }
  check_cuda(status, "taking device memory");
  if (std::getenv("TRIREME_POISON_MEMORY") != nullptr) {
    check_cuda(cudaMemset(block, 0xFF, bytes), "filling new device memory");
    check_cuda(cudaDeviceSynchronize(), "filling new device memory");
  }
  return static_cast<std::byte*>(block);
}

std::byte* take_pinned(size_t bytes) {
  void* block = nullptr;
  check_cuda(cudaHostAlloc(&block, bytes, cudaHostAllocPortable),
             fmt::format("taking {} bytes of page-locked host memory", bytes));
  if (std::getenv("TRIREME_POISON_MEMORY") != nullptr) std::memset(block, 0xFF, bytes);
  return static_cast<std::byte*>(block);
}

void release(std::byte* block, Memory where) {
  if (block == nullptr) return;
  static_cast<void>(where == Memory::device ? cudaFree(block) : cudaFreeHost(block));
}

void copy_bytes(Stream& stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.state().stream),
             fmt::format("copying {} bytes on stream '{}'", bytes, stream.state().name));
}

}  // namespace

std::string_view backend_name() {
  return "cuda";
}
bool device_memory_is_host() {
  return false;
}

Buffer::Buffer(size_t bytes, Memory where) : bytes_(bytes), where_(where) {
  if (bytes == 0) return;
  data_ = where == Memory::device ? take_device(bytes) : take_pinned(bytes);
}

Buffer::~Buffer() {
  release(data_, where_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      where_(other.where_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release(data_, where_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    where_ = other.where_;
  }
  return *this;
}

void copy(Stream& stream, TensorView from, TensorView to) {
  require(from.dtype == to.dtype && from.elements() == to.elements(), ExitCode::internal,
          "copy of {} {} to {} {}: types and element counts must be equal", name_of(from.dtype),
          from.shape.text(), name_of(to.dtype), to.shape.text());
  copy_bytes(stream, to.data, from.data, from.bytes());
}

void copy_to_host(Stream& stream, TensorView from, std::span<std::byte> to) {
  require(from.bytes() == to.size(), ExitCode::internal, "copy of {} bytes to {} host bytes",
          from.bytes(), to.size());
  copy_bytes(stream, to.data(), from.data, to.size());
}

void copy_to_device(Stream& stream, std::span<const std::byte> from, TensorView to) {
  require(to.bytes() == from.size(), ExitCode::internal, "copy of {} host bytes to {} bytes",
          from.size(), to.bytes());
  copy_bytes(stream, to.data, from.data(), from.size());
}

void fill_zero(Stream& stream, TensorView view) {
  if (view.bytes() == 0) return;
  check_cuda(cudaMemsetAsync(view.data, 0, view.bytes(), stream.state().stream),
             fmt::format("clearing {} bytes on stream '{}'", view.bytes(), stream.state().name));
}

}  // namespace trireme::inline TRIREME_BACKEND
