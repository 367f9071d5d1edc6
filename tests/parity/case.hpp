// A parity case: one call of an operation on inputs that are the same for both twins, and what it
// wrote. The case files are compiled once for each backend; the program runs a case on both and
// compares.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trireme::parity {

// Relative tolerances. f32: sums in another order, fused multiply-add and elementary functions that
// are good to a few units in the last place. bf16: both round an f32 result once, and a result near
// the middle of two neighbours may fall on either side.
inline constexpr double kF32 = 4e-6;
inline constexpr double kBf16 = 3e-3;

struct Output {
  std::string name;
  std::vector<float> values;
  double tolerance = kF32;
};

struct Case {
  std::string name;
  std::function<std::vector<Output>()> run;
};

using CaseList = std::vector<Case>;

}  // namespace trireme::parity
