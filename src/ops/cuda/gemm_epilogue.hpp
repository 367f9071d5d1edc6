// What follows a matrix product where the library does not do it: scaling of c, bias, activation.
#pragma once

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

// c = beta * c; zeros where beta is 0, whatever c held.
void scale_matrix(Stream& stream, const Matrix& c, float beta);
// c += bias, row by row.
void add_bias(Stream& stream, const Matrix& c, const TensorView& bias);
// c = gelu(pre), both [m, n]; c may be pre. Of the stored, rounded value, so that applying it again
// to what was kept gives the same bits.
void gelu_matrix(Stream& stream, const Matrix& pre, const Matrix& c);

}  // namespace trireme::inline TRIREME_BACKEND
