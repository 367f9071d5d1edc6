// The step state: on the CPU it lives in host memory.
#include <algorithm>
#include <cmath>

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

void set_step(Stream&, StepState* state, const StepState& values) {
  *state = values;
  std::fill(std::begin(state->sums), std::end(state->sums), 0.0f);
  state->norm = 0;
  state->gradient_scale = 0;
  state->skip = 0;
}

void finish_norm(Stream&, StepState* state) {
  const float root = std::sqrt(state->sums[2]);
  const float tokens = state->sums[1];
  // Without tokens the norm is 0, unless the gradient itself is broken.
  state->norm = tokens == 0 ? root * 0 : root / tokens;
  state->skip = std::isfinite(state->norm) ? 0 : 1;
  const bool clips = state->clip > 0 && state->norm > 0;
  const float factor = clips ? std::min(1.0f, state->clip / (state->norm + 1e-6f)) : 1.0f;
  state->gradient_scale = tokens == 0 ? 0 : factor / tokens;
}

StepState get_step(Stream&, const StepState* state) {
  return *state;
}

}  // namespace trireme::inline TRIREME_BACKEND
