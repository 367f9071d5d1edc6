// Second stage of sums over rows: adds up what the blocks of the first stage left, in block order.
#pragma once

#include "ops/cuda/kernel.cuh"

namespace trireme::inline TRIREME_BACKEND {

// sum [width] += sum over b of partial[b * stride + column], b in [0, count). Same bits for the
// same count. Launches one kernel on `stream`.
void add_partials(Stream& stream, const float* partial, int64_t count, int64_t stride,
                  int64_t width, float* sum);

}  // namespace trireme::inline TRIREME_BACKEND
