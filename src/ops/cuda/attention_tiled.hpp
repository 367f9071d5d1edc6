// Attention of our own: tiles of queries and keys in shared memory. It takes what the vendor's
// fused attention does not: dropout on the probabilities, any offsets, f32, head sizes up to 256.
// Two families: bf16 on the tensor cores, and f32 arithmetic on any input type. Work memory grows
// with B * H * Tq in the backward pass only. Arguments are checked by the caller.
#pragma once

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

inline constexpr int64_t kLargestHead = 256;

// bf16 products on the tensor cores, f32 sums. False, with nothing done, for calls that they do not
// take: other types, rows that cannot be read 16 bytes at a time, heads above 128, keys that begin
// at a position that 4 does not divide.
bool mma_attention_forward(Stream& stream, const AttentionForward& call);
bool mma_attention_backward(Stream& stream, const AttentionBackward& call);

// f32 arithmetic on any type.
void tiled_attention_forward(Stream& stream, const AttentionForward& call);
void tiled_attention_backward(Stream& stream, const AttentionBackward& call);

}  // namespace trireme::inline TRIREME_BACKEND
