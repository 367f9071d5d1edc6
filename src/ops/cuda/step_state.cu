// The step state in device memory: values in by a launch, results out by one copy.
#include <cstring>

#include "ops/cuda/kernel.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

__global__ void set_step_kernel(StepState* state, StepState values) {
  values.sums[0] = values.sums[1] = values.sums[2] = values.sums[3] = 0;
  values.norm = 0;
  values.gradient_scale = 0;
  values.skip = 0;
  *state = values;
}

__global__ void finish_norm_kernel(StepState* state) {
  const float tokens = state->sums[1];
  const float root = sqrtf(state->sums[2]);
  // Without tokens the norm is 0, unless the gradient itself is broken.
  const float norm = tokens > 0 ? root / tokens : root * 0;
  const bool limits = state->clip > 0 && norm > 0;
  const float factor = limits ? fminf(1.0f, state->clip / (norm + 1e-6f)) : 1.0f;
  state->norm = norm;
  state->gradient_scale = tokens > 0 ? factor / tokens : 0.0f;
  state->skip = isfinite(norm) ? 0 : 1;
}

}  // namespace

void set_step(Stream& stream, StepState* state, const StepState& values) {
  set_step_kernel<<<1, 1, 0, native(stream)>>>(state, values);
  check_launch("set_step");
}

void finish_norm(Stream& stream, StepState* state) {
  finish_norm_kernel<<<1, 1, 0, native(stream)>>>(state);
  check_launch("finish_norm");
}

// Through page-locked memory: a copy to other host memory would hold the host inside the driver.
StepState get_step(Stream& stream, const StepState* state) {
  const auto make = [] { return std::make_shared<Buffer>(sizeof(StepState), Memory::pinned); };
  const Buffer& landing = stream.state().attached<Buffer>(Attachment::results, make);
  check_cuda(cudaMemcpyAsync(landing.data(), state, sizeof(StepState), cudaMemcpyDeviceToHost,
                             native(stream)),
             "reading the step state");
  stream.synchronize();
  StepState result;
  std::memcpy(&result, landing.data(), sizeof(result));
  return result;
}

}  // namespace trireme::inline TRIREME_BACKEND
