// Size arithmetic that cannot wrap in silence. Every product or sum of sizes that come from a file
// or a deck goes through here.
#pragma once

#include <cstdint>

#include "trireme/base/error.hpp"

namespace trireme {

// Throws Error(bad_data) on overflow.
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  require(!__builtin_mul_overflow(a, b, &product), ExitCode::bad_data,
          "size {} x {} does not fit in 64 bits", a, b);
  return product;
}

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  require(!__builtin_add_overflow(a, b, &sum), ExitCode::bad_data,
          "size {} + {} does not fit in 64 bits", a, b);
  return sum;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

}  // namespace trireme
