// Device memory that operations take beside the arenas on a GPU. Known to every build, so that a
// plan made anywhere can say it. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/base/checked.hpp"

namespace trireme {

// Of each stream that runs operations.
inline constexpr int64_t kGpuWorkBytes = int64_t{64} << 20;
// A deterministic attention gradient by cuDNN that wants more goes in pieces ...
inline constexpr int64_t kGpuAttentionBytes = int64_t{1} << 30;
// ... and to kernels that want none where one key head of one sequence wants more than this.
inline constexpr int64_t kGpuAttentionMostBytes = 4 * kGpuAttentionBytes;

// Most that the deterministic gradient of bf16 attention takes: two bytes for the gradient of each
// score, lengths rounded up to 64. `heads` and `kv_heads` of one rank.
inline int64_t gpu_attention_bytes(int64_t batch, int64_t length, int64_t heads, int64_t kv_heads) {
  const int64_t rounded = ceil_div(length, 64) * 64;
  const int64_t scores = 2 * rounded * rounded;
  const int64_t least = heads / kv_heads * scores;
  if (least > kGpuAttentionMostBytes) return 0;
  return std::min(batch * heads * scores, std::max(kGpuAttentionBytes, least));
}

}  // namespace trireme
