// One row of residual + dropout(delta + bias), shared by the residual add and the fused norm.
#pragma once

#include "ops/cpu/dropout.hpp"

namespace trireme::inline TRIREME_BACKEND {

// out [width] = residual + mask * (delta + bias); `bias` may be null; `out` may be `residual`.
template <class Storage>
void add_residual_row(const typename Storage::Element* residual,
                      const typename Storage::Element* delta, const typename Storage::Element* bias,
                      typename Storage::Element* out, int64_t width, const DropoutMask& mask,
                      int64_t row) {
  for_tiles(width, [&](int64_t first, int64_t count) {
    alignas(64) float change[kTile];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) change[i] = Storage::load(delta[first + i]);
    if (bias != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) change[i] += Storage::load(bias[first + i]);
    }
    if (mask.on()) mask.apply(row, first, count, change);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      out[first + i] = Storage::store(Storage::load(residual[first + i]) + change[i]);
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
