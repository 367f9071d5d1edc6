// Finite differences: compares an analytic gradient with differences of a scalar function.
//
// A test makes a loss of its outputs with `weighted_sum` (f64 accumulation, fixed random weights),
// runs its backward with those weights as the output's gradient, and calls `expect_gradient` for
// each input.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

namespace trireme::test {

// Uniform in [-scale, scale], the same on every machine for a seed.
inline std::vector<float> random_values(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double unit = static_cast<double>(generator()) / 4294967295.0;
    value = static_cast<float>((2.0 * unit - 1.0) * static_cast<double>(scale));
  }
  return values;
}

inline double weighted_sum(std::span<const float> values, std::span<const float> weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
  return sum;
}

struct DifferenceOptions {
  double step = 2e-2;       // in units of the input; fourth-order differences allow a large one
  double tolerance = 2e-3;  // of the largest gradient entry of the tensor
  size_t samples = 64;  // inputs that are tried, evenly spread; all of them when there are fewer
  const char* name = "input";
};

// d loss / d x[i] by fourth-order central differences. `x` is changed while `loss` is evaluated and
// is restored.
inline double difference(std::span<float> x, size_t i, double step,
                         const std::function<double()>& loss) {
  const float kept = x[i];
  const auto at = [&](double offset) {
    x[i] = static_cast<float>(static_cast<double>(kept) + offset);
    return loss();
  };
  const double far = at(2 * step) - at(-2 * step);
  const double near = at(step) - at(-step);
  x[i] = kept;
  return (8 * near - far) / (12 * step);
}

// Expects gradient[i] to be d loss / d x[i] within `tolerance` of the gradient's largest entry, and
// expects that some entry is not zero, so that a loss that ignores `x` does not pass.
inline void expect_gradient(std::span<float> x, std::span<const float> gradient,
                            const std::function<double()>& loss, DifferenceOptions options = {}) {
  ASSERT_EQ(x.size(), gradient.size()) << options.name;
  double largest = 0;
  for (const float value : gradient) {
    ASSERT_TRUE(std::isfinite(value)) << options.name;
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  ASSERT_GT(largest, 0) << options.name;
  const size_t count = std::min(options.samples, x.size());
  for (size_t k = 0; k < count; ++k) {
    const size_t i = k * x.size() / count;
    const double expected = difference(x, i, options.step, loss);
    ASSERT_NEAR(gradient[i], expected, options.tolerance * largest)
        << options.name << " element " << i << " of " << x.size();
  }
}

}  // namespace trireme::test
