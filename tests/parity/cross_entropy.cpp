// The three calls of cross-entropy, over a whole vocabulary and over one shard of it.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

struct LossCase {
  DType type;
  int64_t rows, cols, valid, first_row, vocabulary;
};

std::vector<Output> run(Device& device, const LossCase& c) {
  Memory memory(device);
  std::vector<float> mask;
  for (int64_t i = 0; i < c.rows; ++i) mask.push_back(i % 5 == 3 ? 0.0f : 1.0f);
  CrossEntropy call;
  const TensorView logits = memory.uniform("logits", {c.rows, c.cols}, c.type, -8, 8);
  call.logits = logits;
  call.first_row = c.first_row;
  call.valid = c.valid;
  call.targets = memory.random_integers("targets", c.rows, c.vocabulary);
  call.mask = memory.floats(mask, {c.rows}, DType::f32);
  call.row_max = memory.poisoned({c.rows}, DType::f32);
  call.sums = memory.poisoned({2, c.rows}, DType::f32);
  call.loss = memory.poisoned({c.rows}, DType::f32);
  StepState start{};
  call.state = memory.state(start);
  cross_entropy_max(memory.stream(), call);
  cross_entropy_sums(memory.stream(), call);
  std::vector<Output> outputs{memory.read("row_max", call.row_max, 0),
                              memory.read("sums", call.sums, 2 * kF32)};
  cross_entropy_finish(memory.stream(), call);
  outputs.push_back(memory.read("loss", call.loss));
  outputs.push_back(memory.read("gradient", logits, c.type == DType::bf16 ? kBf16 : 2 * kF32));
  outputs.push_back(memory.read_sums(call.state));
  return outputs;
}

}  // namespace

void cross_entropy_cases(Device& device, CaseList& list) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string t = name_of(type);
    const auto add = [&](const char* name, const LossCase& c) {
      list.push_back({"cross_entropy_" + t + name, [&device, c] { return run(device, c); }});
    };
    add("_odd", {type, 13, 61, 57, 0, 57});
    add("_padded", {type, 130, 512, 500, 0, 500});
    add("_shard", {type, 130, 256, 250, 300, 700});
    add("_empty_shard", {type, 20, 64, 0, 700, 700});
    add("_large", {type, 40, 50304, 50257, 0, 50257});
  }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
