// Attention of our own: tiles of queries and keys in shared memory, f32 arithmetic on any input
// type. It takes what the vendor's fused attention does not: f32, dropout on the probabilities, any
// offsets and head sizes up to 256. Work memory grows with B * H * Tq in the backward pass only.
#pragma once

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

inline constexpr int64_t kLargestHead = 256;

// Arguments are checked by the caller.
void tiled_attention_forward(Stream& stream, const AttentionForward& call);
void tiled_attention_backward(Stream& stream, const AttentionBackward& call);

}  // namespace trireme::inline TRIREME_BACKEND
