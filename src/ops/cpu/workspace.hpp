// Work memory of the CPU operations: one block a stream, of a fixed size, taken at the first use.
//
// It serves one operation at a time, since operations run at once: either as a piece for each
// thread (attention) or as f32 tiles of matrices (products of bf16). Its size depends on the number
// of threads only, never on a tensor's shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/device/device.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Rows and columns of the square f32 tiles that products of bf16 go through.
inline constexpr int64_t kProductTile = 1024;
// Queries, and keys, of one attention tile; OpenBLAS has its fastest kernels at this size.
inline constexpr int64_t kAttentionTile = 64;
inline constexpr int64_t kLargestHead = 256;
// Floats of one thread: ten tiles of [64, head size], four of [64, 64], and vectors of 64.
inline constexpr int64_t kThreadFloats =
    10 * kAttentionTile * kLargestHead + 4 * kAttentionTile * kAttentionTile + 16 * kAttentionTile;

class Workspace {
 public:
  // Sees the stream's block; takes it at the first use, or when threads were added.
  explicit Workspace(Stream& stream);
  int threads() const { return threads_; }
  // kThreadFloats floats of one thread, 256-byte aligned.
  float* of_thread(int thread) const { return data_ + thread * kThreadFloats; }
  // Tile 0, 1 or 2 of kProductTile x kProductTile floats.
  float* tile(int index) const { return data_ + index * kProductTile * kProductTile; }

 private:
  float* data_ = nullptr;
  int threads_ = 1;
};

}  // namespace trireme::inline TRIREME_BACKEND
