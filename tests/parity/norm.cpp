// Norms with the residual add before them, forward and backward.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

struct NormCase {
  NormKind kind;
  DType type;
  int64_t rows, width;
  bool delta, in_place;
  float dropout;
};

DropoutSite site_of(const NormCase& c, const StepState* state) {
  DropoutSite site;
  site.probability = c.dropout;
  site.site = 11;
  site.sample_offset = 3;
  site.row_offset = 5;
  site.sequence = 7;
  site.state = state;
  return site;
}

std::vector<Output> run_forward(Device& device, const NormCase& c) {
  Memory memory(device);
  const Shape shape{c.rows, c.width};
  NormForward call;
  call.kind = c.kind;
  call.residual_in = memory.uniform("residual", shape, c.type);
  call.gain = memory.uniform("gain", {c.width}, c.type, 0.5f, 1.5f);
  if (c.kind == NormKind::layer_norm) call.bias = memory.uniform("bias", {c.width}, c.type);
  if (c.delta) {
    call.delta = memory.uniform("delta", shape, c.type);
    call.delta_bias = memory.uniform("delta_bias", {c.width}, c.type);
    call.residual_out = c.in_place ? call.residual_in : memory.poisoned(shape, c.type);
    call.dropout = site_of(c, memory.training_state());
  }
  call.normalized = memory.poisoned(shape, c.type);
  norm_forward(memory.stream(), call);
  std::vector<Output> outputs{memory.read("normalized", call.normalized)};
  if (c.delta) outputs.push_back(memory.read("residual_out", call.residual_out));
  return outputs;
}

std::vector<Output> run_backward(Device& device, const NormCase& c) {
  Memory memory(device);
  const Shape shape{c.rows, c.width};
  NormBackward call;
  call.kind = c.kind;
  call.x = memory.uniform("x", shape, c.type, -0.5f, 1.5f);
  call.gain = memory.uniform("gain", {c.width}, c.type, 0.5f, 1.5f);
  call.d_normalized = memory.uniform("d", shape, c.type);
  call.d_residual = memory.uniform("d_residual", shape, c.type);
  call.d_gain = memory.uniform("d_gain", {c.width}, DType::f32);
  if (c.kind == NormKind::layer_norm) call.d_bias = memory.uniform("d_bias", {c.width}, DType::f32);
  norm_backward(memory.stream(), call);
  std::vector<Output> outputs{memory.read("d_residual", call.d_residual),
                              memory.read("d_gain", call.d_gain, 2 * kF32)};
  if (!call.d_bias.empty()) outputs.push_back(memory.read("d_bias", call.d_bias, 2 * kF32));
  return outputs;
}

}  // namespace

void norm_cases(Device& device, CaseList& list) {
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm})
    for (const DType type : {DType::f32, DType::bf16})
      for (const int64_t width : {5, 96, 384, 768, 1001, 1600, 4096, 8192}) {
        const std::string name = std::string(kind == NormKind::layer_norm ? "layer" : "rms") + "_" +
                                 name_of(type) + "_" + std::to_string(width);
        const int64_t rows = width > 2000 ? 37 : 301;
        const auto forward = [&](const char* what, const NormCase& c) {
          list.push_back({"norm_" + name + what, [&device, c] { return run_forward(device, c); }});
        };
        forward("", {kind, type, rows, width, false, false, 0});
        forward("_delta", {kind, type, rows, width, true, false, 0});
        forward("_dropout", {kind, type, rows, width, true, true, 0.1f});
        const NormCase c{kind, type, rows, width, false, false, 0};
        list.push_back({"norm_backward_" + name, [&device, c] { return run_backward(device, c); }});
      }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
