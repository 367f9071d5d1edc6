// The local part of a reduction: contributions of all ranks, in rank order, to one result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/base/tensor.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme::inline TRIREME_BACKEND {

// out[i] = parts[0][i] (+ or max) parts[1][i] ... for `count` elements, in this order, in f32,
// rounded once to `type` (f32 or bf16). `out` may be one of the parts. A maximum with NaN is NaN.
void reduce_in_order(DType type, Reduce how, std::span<const std::byte* const> parts, int64_t count,
                     std::byte* out);

}  // namespace trireme::inline TRIREME_BACKEND
