// The mask of a dropout site, applied to tiles of rows. The address arithmetic is that of
// `trireme/ops/dropout_mask.hpp`.
#pragma once

#include "ops/cpu/parallel.hpp"
#include "trireme/ops/dropout_mask.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

class DropoutMask {
 public:
  // Throws Error(internal) for a site that cannot be drawn.
  explicit DropoutMask(const DropoutSite& site) : site_(site) {
    require(site.probability >= 0 && site.probability < 1, ExitCode::internal,
            "dropout site {}: probability {} is not in [0, 1)", site.site, site.probability);
    if (site.probability == 0) return;
    require(site.state != nullptr && site.sequence > 0, ExitCode::internal,
            "dropout site {}: needs a step state and a sequence length, has length {}", site.site,
            site.sequence);
    if (site.state->training == 0) return;
    on_ = true;
    key_ = dropout_key(site.state->seed, site.state->step, site.site);
    threshold_ = dropout_threshold(site.probability);
    kept_ = 1.0f / (1.0f - site.probability);
  }
  bool on() const { return on_; }

  // values *= factor (0 or 1 / (1 - p)) for columns [first, first + count) of a row. `first` is a
  // multiple of 4 and count is at most kTile.
  void apply(int64_t row, int64_t first, int64_t count, float* values) const {
    const int64_t place = site_.row_offset + row;
    const uint32_t position = static_cast<uint32_t>(place % site_.sequence);
    const int64_t sample = site_.state->first_sample + site_.sample_offset + place / site_.sequence;
    alignas(64) uint32_t words[kTile];
    const uint32_t group = static_cast<uint32_t>(first / 4);
    const int64_t groups = ceil_div(count, 4);
#pragma omp simd
    for (int64_t g = 0; g < groups; ++g) {
      const PhiloxWords w = dropout_words(key_, group + static_cast<uint32_t>(g), position, sample);
      words[4 * g] = w.x;
      words[4 * g + 1] = w.y;
      words[4 * g + 2] = w.z;
      words[4 * g + 3] = w.w;
    }
    const uint32_t threshold = threshold_;
    const float kept = kept_;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) values[i] = words[i] < threshold ? 0.0f : values[i] * kept;
  }

 private:
  DropoutSite site_;
  bool on_ = false;
  uint64_t key_ = 0;
  uint32_t threshold_ = 0;
  float kept_ = 1;
};

}  // namespace trireme::inline TRIREME_BACKEND
