// How many sequences each step takes, where the global batch grows at the start of a run. Pure
// functions of consumed samples, so nothing needs to be saved.
//
// The arithmetic is that of Megatron-LM's --rampup-batch-size: with steps = (final - start) /
// increment and per = samples / steps (in f64), the size at c consumed samples is `final` where c >
// samples, else start + trunc(c / per) * increment.
#pragma once

#include <cstdint>

namespace trireme {

struct BatchRamp {
  int64_t final = 1;      // sequences
  int64_t start = 0;      // sequences; 0 or `final`: no ramp
  int64_t increment = 0;  // sequences; divides final - start
  int64_t samples = 0;    // sequences over which the ramp reaches `final`
  bool active() const { return start > 0 && start < final && increment > 0; }
};

// Sequences of the step that starts when `consumed` sequences have been used.
int64_t batch_size_at(const BatchRamp& ramp, int64_t consumed);
// Sequences used before step `step` (from 0) starts. Saturates at the largest int64_t.
int64_t consumed_before(const BatchRamp& ramp, int64_t step);
// Micro-batches of each dp rank in that step; micro * dp divides every size of the ramp (checked
// when the deck is read).
int64_t micro_batches_at(const BatchRamp& ramp, int64_t consumed, int64_t micro, int64_t dp);

}  // namespace trireme
