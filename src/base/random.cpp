// Compiled with floating-point contraction off: the bits of `normal_at` are part of the format.
#include "trireme/base/random.hpp"

#include <cmath>

namespace trireme {
namespace {

double polynomial(const double* c, int degree, double x) {
  double sum = c[degree];
  for (int i = degree - 1; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

// Natural logarithm of 0 < x < 1 by 2 atanh((m-1)/(m+1)) on m in [sqrt(1/2), sqrt(2)).
double exact_log(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  double m = __builtin_bit_cast(double, (bits & 0x000fffffffffffffull) | 0x3fe0000000000000ull);
  if (m < 0.70710678118654752440) {
    m = m * 2;
    exponent -= 1;
  }
  const double z = (m - 1) / (m + 1);
  const double z2 = z * z;
  double sum = 0;
  for (int k = 12; k >= 0; --k) sum = sum * z2 + 1.0 / (2 * k + 1);
  return 2 * z * sum + exponent * 0.69314718055994530942;
}

constexpr double kA[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                          1.9715909503065514427e+3, 1.3731693765509461125e+4,
                          4.5921953931549871457e+4, 6.7265770927008700853e+4,
                          3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kB[8] = {1.0,
                          4.2313330701600911252e+1,
                          6.8718700749205790830e+2,
                          5.3941960214247511077e+3,
                          2.1213794301586595867e+4,
                          3.9307895800092710610e+4,
                          2.8729085735721942674e+4,
                          5.2264952788528545610e+3};
constexpr double kC[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                          5.76949722146069140550e0,  3.64784832476320460504e0,
                          1.27045825245236838258e0,  2.41780725177450611770e-1,
                          2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kD[8] = {1.0,
                          2.05319162663775882187e0,
                          1.67638483018380384940e0,
                          6.89767334985100004550e-1,
                          1.48103976427480074590e-1,
                          1.51986665636164571966e-2,
                          5.47593808499534494600e-4,
                          1.05075007164441684324e-9};
constexpr double kE[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                          1.78482653991729133580e0,  2.96560571828504891230e-1,
                          2.65321895265761230930e-2, 1.24266094738807843860e-3,
                          2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kF[8] = {1.0,
                          5.99832206555887937690e-1,
                          1.36929880922735805310e-1,
                          1.48753612908506148525e-2,
                          7.86869131145613259100e-4,
                          1.84631831751005468180e-5,
                          1.42151175831644588870e-7,
                          2.04426310338993978564e-15};

}  // namespace

uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return mix64(hash);
}

uint64_t stream_key(uint64_t seed, std::string_view name) {
  return mix64(name_hash(name) ^ mix64(seed + 0x9E3779B97F4A7C15ull));
}

double normal_at(uint64_t key, uint64_t index) {
  const PhiloxWords r =
      philox(static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0x6E6F726Du, key);
  const uint64_t word = (static_cast<uint64_t>(r.x) << 32) | r.y;
  // Odd multiples of 2^-53: never 0, 1 or 1/2.
  const double p = (static_cast<double>(word >> 12) + 0.5) * 0x1.0p-52;
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double t = 0.180625 - q * q;
    return q * polynomial(kA, 7, t) / polynomial(kB, 7, t);
  }
  double t = std::sqrt(-exact_log(q < 0 ? p : 1 - p));
  const double tail = t <= 5 ? (t = t - 1.6, polynomial(kC, 7, t) / polynomial(kD, 7, t))
                             : (t = t - 5, polynomial(kE, 7, t) / polynomial(kF, 7, t));
  return q < 0 ? -tail : tail;
}

}  // namespace trireme
