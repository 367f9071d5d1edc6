// Activations, casts, adds, residual add and dropout.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

std::vector<Output> run_gelu(Device& device, DType type, int64_t n) {
  Memory memory(device);
  const TensorView x = memory.uniform("x", {n}, type, -6, 6);
  const TensorView dy = memory.uniform("dy", {n}, type);
  const TensorView y = memory.poisoned({n}, type), dx = memory.poisoned({n}, type);
  gelu_forward(memory.stream(), x, y);
  gelu_backward(memory.stream(), x, dy, dx);
  gelu_backward(memory.stream(), x, dy, dy);
  return {memory.read("y", y), memory.read("dx", dx), memory.read("in_place", dy)};
}

std::vector<Output> run_swiglu(Device& device, DType type, int64_t n, int64_t width,
                               int64_t padding) {
  Memory memory(device);
  const TensorView whole = memory.uniform("x", {n, 2 * width + padding}, type, -4, 4);
  const Matrix x = Matrix(whole).columns(0, 2 * width);
  const TensorView dy = memory.uniform("dy", {n, width}, type);
  const TensorView y = memory.poisoned({n, width}, type);
  const TensorView dx = memory.poisoned({n, 2 * width}, type);
  swiglu_forward(memory.stream(), x, y);
  swiglu_backward(memory.stream(), x, dy, dx);
  swiglu_backward(memory.stream(), x, dy, x);
  return {memory.read("y", y), memory.read("dx", dx), memory.read("in_place", whole)};
}

std::vector<Output> run_cast(Device& device, int64_t n, int64_t skip) {
  Memory memory(device);
  const TensorView x = memory.uniform("x", {n + skip}, DType::f32, -9, 9).range(skip, n + skip);
  const TensorView half = memory.poisoned({n}, DType::bf16);
  const TensorView back = memory.poisoned({n}, DType::f32), same = memory.poisoned({n}, DType::f32);
  cast(memory.stream(), x, half);
  cast(memory.stream(), half, back);
  cast(memory.stream(), x, same);
  return {memory.read("half", half, 0), memory.read("back", back, 0), memory.read("same", same, 0)};
}

std::vector<Output> run_add(Device& device, DType type, int64_t n) {
  Memory memory(device);
  const TensorView x = memory.uniform("x", {n}, type), y = memory.uniform("y", {n}, type);
  add(memory.stream(), x, y);
  return {memory.read("y", y, 0)};
}

std::vector<Output> run_sum_parts(Device& device, DType type, int64_t parts, int64_t n) {
  Memory memory(device);
  const TensorView x = memory.uniform("x", {parts, n}, type), sum = memory.poisoned({n}, type);
  sum_parts(memory.stream(), x, sum);
  return {memory.read("sum", sum, 0)};
}

DropoutSite site_of(const StepState* state, float probability) {
  DropoutSite site;
  site.probability = probability;
  site.site = 26;
  site.sample_offset = -2;
  site.row_offset = 9;
  site.sequence = 13;
  site.state = state;
  return site;
}

std::vector<Output> run_residual(Device& device, DType type, int64_t width, float probability) {
  Memory memory(device);
  const Shape shape{61, width};
  ResidualAdd call;
  call.residual = memory.uniform("residual", shape, type);
  call.delta = memory.uniform("delta", shape, type);
  call.delta_bias = memory.uniform("bias", {width}, type);
  call.out = memory.poisoned(shape, type);
  call.dropout = site_of(memory.training_state(), probability);
  residual_add(memory.stream(), call);
  Dropout alone;
  alone.x = call.delta;
  alone.out = memory.poisoned(shape, type);
  alone.site = call.dropout;
  dropout(memory.stream(), alone);
  StepState idle{};
  const TensorView off = memory.poisoned(shape, type);
  dropout(memory.stream(), {call.delta, off, site_of(memory.state(idle), probability)});
  return {memory.read("out", call.out), memory.read("dropout", alone.out, tolerance_of(type)),
          memory.read("not_training", off, 0)};
}

}  // namespace

void pointwise_cases(Device& device, CaseList& list) {
  for (const int64_t n : {1, 100, 4099})
    for (const int64_t skip : {0, 1})
      list.push_back({"cast_" + std::to_string(n) + "_" + std::to_string(skip),
                      [&device, n, skip] { return run_cast(device, n, skip); }});
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string t = name_of(type);
    for (const int64_t n : {1, 77, 40961}) {
      const std::string name = t + "_" + std::to_string(n);
      list.push_back({"gelu_" + name, [&device, type, n] { return run_gelu(device, type, n); }});
      list.push_back({"add_" + name, [&device, type, n] { return run_add(device, type, n); }});
      for (const int64_t parts : {2, 3})
        list.push_back(
            {"sum_parts_" + std::to_string(parts) + "_" + name,
             [&device, type, parts, n] { return run_sum_parts(device, type, parts, n); }});
    }
    for (const int64_t width : {3, 88, 4096})
      for (const int64_t padding : {0, 16})
        list.push_back({"swiglu_" + t + "_" + std::to_string(width) + "_" + std::to_string(padding),
                        [&device, type, width, padding] {
                          return run_swiglu(device, type, 33, width, padding);
                        }});
    for (const int64_t width : {7, 96, 1600})
      for (const float probability : {0.0f, 0.25f})
        list.push_back(
            {"residual_" + t + "_" + std::to_string(width) + (probability > 0 ? "_dropout" : ""),
             [&device, type, width, probability] {
               return run_residual(device, type, width, probability);
             }});
  }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
