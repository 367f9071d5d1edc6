// How the benches decide whether a result is right: outputs are written in full, and sampled
// elements agree with plain arithmetic in f64 on the host. What is wrong throws Error(internal).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/bench_data.hpp"

namespace trireme::app {

// What an element should be, and by how much it may differ besides the rounding of its type.
struct Expected {
  double value = 0;
  double slack = 0;
  bool exact = false;  // not even by rounding
};
// `magnitude`: sum of the magnitudes of the terms that make the value.
inline Expected expected(double value, double magnitude) {
  return {value, 1e-5 * magnitude};
}

// An element of a result, for messages.
struct Place {
  const std::string& what;
  int64_t row = 0, column = 0;
};
// |value - expected| <= rounding of the type * |expected| + slack.
void require_near(const Place& place, DType type, float value, const Expected& expected);

// No poison is left.
void require_written(Stream& stream, const Matrix& output, const std::string& what);

// An operation whose row of results depends on the same row of its inputs. `reference` gives the
// expected row of each output. Calls the operation once; `inputs` are read before it.
struct RowCheck {
  std::string what;  // the operation
  std::vector<Matrix> inputs, outputs;
  std::function<void()> call;
  using Rows = std::vector<std::vector<float>>;        // of each input
  using Outputs = std::vector<std::vector<Expected>>;  // of each output
  std::function<Outputs(int64_t row, const Rows& inputs)> reference;
};
void check_rows(Stream& stream, const RowCheck& check);

// The factor of a dropout site on one element: 0 or 1 / (1 - probability).
double dropout_factor(const DropoutSite& site, const StepState& state, int64_t row, int64_t column);

double gelu(double x);
double gelu_slope(double x);

}  // namespace trireme::app
