// AdamW over segments, the squared norm and the step state.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

StepState step_values() {
  StepState values{};
  values.seed = 5;
  values.step = 3;
  values.learning_rate = 3e-3f;
  values.clip = 1;
  values.correction1 = 1 - 0.9f * 0.9f;
  values.correction2 = 1 - 0.95f * 0.95f;
  values.training = 1;
  return values;
}

// `poisons`: a gradient that is not finite, so that nothing may change.
std::vector<Output> run_adamw(Device& device, DType type, int64_t skip, bool poisons) {
  Memory memory(device);
  const int64_t n = 10007;
  const auto flat = [&](const char* name, float low, float high) {
    return memory.uniform(name, {n + skip}, DType::f32, low, high).range(skip, n + skip);
  };
  AdamW call;
  std::vector<float> counts{0, 6, 0, 0};
  call.gradient = flat("gradient", -1, 1);
  call.master = flat("master", -1, 1);
  call.m = flat("m", -0.1f, 0.1f);
  call.v = flat("v", 0, 0.1f);
  call.value = memory.uniform("value", {n}, type);
  const std::vector<AdamWSegment> segments{
      {2, 3001, 0.1f}, {3003, 1, 0}, {3010, 2, 0.5f}, {3012, 6990, 0}};
  call.segments = segments;
  call.device_segments = memory.segments(segments);
  StepState* state = memory.state(step_values());
  call.state = state;
  const TensorView sums{
      reinterpret_cast<std::byte*>(state) + offsetof(StepState, sums), {4}, DType::f32};
  if (poisons) counts[2] = INFINITY;
  copy_to_device(memory.stream(), std::as_bytes(std::span(counts)), sums);
  add_squared_norm(memory.stream(), call.gradient, state);
  finish_norm(memory.stream(), state);
  adamw(memory.stream(), call);
  std::vector<Output> outputs{memory.read("master", call.master), memory.read("m", call.m),
                              memory.read("v", call.v), memory.read("value", call.value)};
  const StepState s = get_step(memory.stream(), state);
  outputs.push_back({"state", {s.gradient_scale, static_cast<float>(s.skip)}, kF32});
  if (!poisons) outputs.push_back(memory.read_sums(state));
  return outputs;
}

std::vector<Output> run_norm(Device& device, int64_t n, int64_t skip) {
  Memory memory(device);
  StepState* state = memory.state(step_values());
  const TensorView x = memory.uniform("x", {n + skip}, DType::f32).range(skip, n + skip);
  add_squared_norm(memory.stream(), x, state);
  add_squared_norm(memory.stream(), x, state);
  return {memory.read_sums(state)};
}

}  // namespace

void optimizer_cases(Device& device, CaseList& list) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t skip : {0, 1})
      for (const bool poisons : {false, true})
        list.push_back(
            {std::string("adamw_") + name_of(type) + (skip != 0 ? "_unaligned" : "") +
                 (poisons ? "_skipped" : ""),
             [&device, type, skip, poisons] { return run_adamw(device, type, skip, poisons); }});
  for (const int64_t n : {1, 1023, 2000003})
    for (const int64_t skip : {0, 1})
      list.push_back({"squared_norm_" + std::to_string(n) + "_" + std::to_string(skip),
                      [&device, n, skip] { return run_norm(device, n, skip); }});
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
