// The mask of a dropout site on the device. The address arithmetic is that of
// `trireme/ops/dropout_mask.hpp`.
#pragma once

#include "ops/cuda/kernel.cuh"
#include "trireme/ops/dropout_mask.hpp"

namespace trireme::inline TRIREME_BACKEND {

// What a kernel needs of a DropoutSite; `state` is null where dropout is off.
struct DropoutArguments {
  const StepState* state = nullptr;
  uint32_t site = 0;
  uint32_t threshold = 0;
  float kept = 1;  // factor of elements that stay
  int64_t sample_offset = 0, row_offset = 0, sequence = 1;
};

// Throws Error(internal) for a site that cannot be drawn.
inline DropoutArguments dropout_arguments(const DropoutSite& site) {
  require(site.probability >= 0 && site.probability < 1, ExitCode::internal,
          "dropout site {}: probability {} is not in [0, 1)", site.site, site.probability);
  if (site.probability == 0) return {};
  require(site.state != nullptr && site.sequence > 0, ExitCode::internal,
          "dropout site {}: needs a step state and a sequence length, has length {}", site.site,
          site.sequence);
  return {site.state,
          site.site,
          dropout_threshold(site.probability),
          1.0f / (1.0f - site.probability),
          site.sample_offset,
          site.row_offset,
          site.sequence};
}

// The mask of one row.
struct RowMask {
  bool on = false;
  uint64_t key = 0;
  uint32_t position = 0;
  int64_t sample = 0;
};

__device__ inline RowMask row_mask(const DropoutArguments& a, int64_t row) {
  if (a.state == nullptr || a.state->training == 0) return {};
  const int64_t place = a.row_offset + row;
  return {true, dropout_key(a.state->seed, a.state->step, a.site),
          static_cast<uint32_t>(place % a.sequence),
          a.state->first_sample + a.sample_offset + place / a.sequence};
}

// values *= 0 or `kept` for the V columns from `column` (a multiple of V; V is 1 or a multiple of
// 4).
template <int V>
__device__ inline void apply_mask(const DropoutArguments& a, const RowMask& row, int64_t column,
                                  float (&values)[V]) {
  if (!row.on) return;
  const uint32_t group = static_cast<uint32_t>(column / 4);
  if constexpr (V == 1) {
    const PhiloxWords w = dropout_words(row.key, group, row.position, row.sample);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
    values[0] = words[column % 4] < a.threshold ? 0.0f : values[0] * a.kept;
  } else {
#pragma unroll
    for (int g = 0; g < V / 4; ++g) {
      const PhiloxWords w = dropout_words(row.key, group + g, row.position, row.sample);
      const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& value = values[4 * g + i];
        value = words[i] < a.threshold ? 0.0f : value * a.kept;
      }
    }
  }
}

}  // namespace trireme::inline TRIREME_BACKEND
