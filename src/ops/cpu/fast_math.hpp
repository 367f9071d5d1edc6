// Elementary functions that the compiler can vectorise: no branches, no tables, no library calls.
//
// Each is good to a few units in the last place over the normal range, and lets NaN through, so
// that a broken value is seen by the loss and the norm.
#pragma once

#include <cstdint>

namespace trireme::inline TRIREME_BACKEND {

// e^x. 0 below ln(smallest normal) = -87.34, infinity above ln(largest) = 88.73.
// x = n ln 2 + r with |r| <= ln 2 / 2, e^r by a minimax polynomial; 2^n in two factors, so that n =
// 128 still gives the largest finite values.
inline float fast_exp(float x) {
  constexpr float kLowest = -87.33654f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  float a = x < kLowest ? kLowest : x;
  a = a > 89.0f ? 89.0f : a;
  const float shifted = a * 1.44269504f + kRound;
  const float n = shifted - kRound;
  float r = a - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t whole = __builtin_bit_cast(int32_t, shifted) - __builtin_bit_cast(int32_t, kRound);
  const int32_t half = whole >> 1;
  const float scale1 = __builtin_bit_cast(float, (half + 127) << 23);
  const float scale2 = __builtin_bit_cast(float, (whole - half + 127) << 23);
  const float y = p * scale1 * scale2;
  return x < kLowest ? 0.0f : y;
}

// 1 / (1 + e^-x), accurate also where it is close to 0.
inline float sigmoid(float x) {
  return 1.0f / (1.0f + fast_exp(-x));
}

// GELU, tanh form, as x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)): the same function, without the
// cancellation of 1 + tanh in the left tail.
inline float gelu(float x) {
  return x * sigmoid(x * (1.5957691216f + 0.0713548162726f * (x * x)));
}

// sigmoid and its derivative sigmoid (1 - sigmoid), without the cancellation of 1 - sigmoid.
struct Logistic {
  float value, slope;
};
inline Logistic logistic(float x) {
  const float e = fast_exp(x < 0.0f ? x : -x);
  const float near_one = 1.0f / (1.0f + e);
  const float near_zero = e * near_one;
  return {x < 0.0f ? near_zero : near_one, near_zero * near_one};
}

// d gelu / d x.
inline float gelu_slope(float x) {
  const float x2 = x * x;
  const Logistic s = logistic(x * (1.5957691216f + 0.0713548162726f * x2));
  return s.value + s.slope * (x * (1.5957691216f + 0.2140644488178f * x2));
}

}  // namespace trireme::inline TRIREME_BACKEND
