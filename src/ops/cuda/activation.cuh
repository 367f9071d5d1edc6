// Activations in f32 on the device, shared by the pointwise kernels and those behind a matrix
// product.
#pragma once

namespace trireme::inline TRIREME_BACKEND {

__device__ inline float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + expf(-x));
}

// GELU, tanh form, as x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)): the same function, without the
// cancellation of 1 + tanh in the left tail.
__device__ inline float gelu(float x) {
  return x * sigmoid(x * (1.5957691216f + 0.0713548162726f * (x * x)));
}
// d gelu / d x.
__device__ inline float gelu_slope(float x) {
  const float x2 = x * x;
  const float s = sigmoid(x * (1.5957691216f + 0.0713548162726f * x2));
  return s + s * (1.0f - s) * (x * (1.5957691216f + 0.2140644488178f * x2));
}

}  // namespace trireme::inline TRIREME_BACKEND
