// Statistics of one row, shared by the forward and the backward norm, so that the backward pass
// finds the same bits again.
#pragma once

#include <cmath>

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

struct RowStatistics {
  float mean = 0;     // 0 for rms_norm
  float inverse = 0;  // 1 / sqrt(variance + epsilon), or of the mean square
};

template <class Storage>
RowStatistics row_statistics(const typename Storage::Element* x, int64_t width, NormKind kind,
                             float epsilon) {
  RowStatistics row;
  const float scale = 1.0f / static_cast<float>(width);
  if (kind == NormKind::layer_norm) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) sum += Storage::load(x[i]);
    row.mean = sum * scale;
  }
  const float mean = row.mean;
  float square = 0;
#pragma omp simd reduction(+ : square)
  for (int64_t i = 0; i < width; ++i) {
    const float centred = Storage::load(x[i]) - mean;
    square += centred * centred;
  }
  row.inverse = 1.0f / std::sqrt(square * scale + epsilon);
  return row;
}

}  // namespace trireme::inline TRIREME_BACKEND
