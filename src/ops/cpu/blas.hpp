// The one BLAS call in use, for row-major matrices.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cstdint>

namespace trireme::inline TRIREME_BACKEND {

enum class Turn : bool { no, yes };

// c [m,n] = alpha * op(a) [m,k] * op(b) [k,n] + beta * c; `a_stride` elements between rows of the
// stored matrix. Sizes and strides are below 2^31. Runs on the calling thread inside a parallel
// region, on all threads outside.
inline void sgemm(Turn turn_a, Turn turn_b, int64_t m, int64_t n, int64_t k, const float* a,
                  int64_t a_stride, const float* b, int64_t b_stride, float beta, float* c,
                  int64_t c_stride) {
  const auto size = [](int64_t value) { return static_cast<blasint>(value); };
  const auto stride = [](int64_t value) {
    return static_cast<blasint>(std::max<int64_t>(1, value));
  };
  cblas_sgemm(CblasRowMajor, turn_a == Turn::yes ? CblasTrans : CblasNoTrans,
              turn_b == Turn::yes ? CblasTrans : CblasNoTrans, size(m), size(n), size(k), 1.0f, a,
              stride(a_stride), b, stride(b_stride), beta, c, stride(c_stride));
}

}  // namespace trireme::inline TRIREME_BACKEND
