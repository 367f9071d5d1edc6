#include "trireme/config/batch_ramp.hpp"

#include <limits>

namespace trireme {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// a + steps * size, at most kMost.
int64_t advance(int64_t a, int64_t steps, int64_t size) {
  int64_t product = 0, sum = 0;
  if (__builtin_mul_overflow(steps, size, &product)) return kMost;
  return __builtin_add_overflow(a, product, &sum) ? kMost : sum;
}

// Steps, at most `most`, that start at `consumed` or later and have its size.
int64_t steps_of_this_size(const BatchRamp& ramp, int64_t consumed, int64_t most) {
  const int64_t size = batch_size_at(ramp, consumed);
  int64_t same = 1, other = most;  // `same` steps have this size; look for the largest such count
  while (same < other) {
    const int64_t middle = same + (other - same + 1) / 2;
    if (batch_size_at(ramp, advance(consumed, middle - 1, size)) == size) {
      same = middle;
    } else {
      other = middle - 1;
    }
  }
  return same;
}

}  // namespace

int64_t batch_size_at(const BatchRamp& ramp, int64_t consumed) {
  if (!ramp.active() || consumed > ramp.samples) return ramp.final;
  const int64_t levels = (ramp.final - ramp.start) / ramp.increment;
  const double per = static_cast<double>(ramp.samples) / static_cast<double>(levels);
  if (per <= 0) return ramp.final;
  return ramp.start + static_cast<int64_t>(static_cast<double>(consumed) / per) * ramp.increment;
}

int64_t consumed_before(const BatchRamp& ramp, int64_t step) {
  int64_t consumed = 0;
  int64_t left = step;
  while (left > 0 && ramp.active() && consumed <= ramp.samples) {
    const int64_t steps = steps_of_this_size(ramp, consumed, left);
    consumed = advance(consumed, steps, batch_size_at(ramp, consumed));
    left -= steps;
  }
  return advance(consumed, left, ramp.final);
}

int64_t micro_batches_at(const BatchRamp& ramp, int64_t consumed, int64_t micro, int64_t dp) {
  return batch_size_at(ramp, consumed) / (micro * dp);
}

}  // namespace trireme
