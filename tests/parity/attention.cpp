// Attention on packed, strided q, k and v: grouped heads, odd sizes, key ranges with offsets,
// dropout.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

struct AttentionCase {
  DType type;
  int64_t batch, queries, keys, heads, kv_heads, size;
  float dropout = 0;
  int64_t query_offset = 0, key_offset = 0;
};

AttentionShape shape_of(const AttentionCase& c, const StepState* state) {
  AttentionShape s;
  s.batch = c.batch;
  s.query_length = c.queries;
  s.key_length = c.keys;
  s.heads = c.heads;
  s.kv_heads = c.kv_heads;
  s.head_size = c.size;
  s.query_offset = c.query_offset;
  s.key_offset = c.key_offset;
  s.scale = 1.0f / std::sqrt(static_cast<float>(c.size));
  s.first_head = 4;
  s.dropout.probability = c.dropout;
  s.dropout.site = 19;
  s.dropout.sample_offset = 6;
  s.dropout.sequence = c.queries;
  s.dropout.state = state;
  return s;
}

std::vector<Output> run(Device& device, const AttentionCase& c) {
  Memory memory(device);
  const int64_t q_width = c.heads * c.size, kv_width = c.kv_heads * c.size;
  const int64_t rows = c.batch * c.queries, key_rows = c.batch * c.keys;
  const TensorView q_packed = memory.uniform("q", {rows, q_width + 2 * kv_width}, c.type, -2, 2);
  const TensorView kv_packed = memory.uniform("kv", {key_rows, 2 * kv_width}, c.type, -2, 2);
  AttentionForward forward;
  forward.shape = shape_of(c, memory.training_state());
  forward.q = Matrix(q_packed).columns(0, q_width);
  forward.k = Matrix(kv_packed).columns(0, kv_width);
  forward.v = Matrix(kv_packed).columns(kv_width, 2 * kv_width);
  const TensorView output = memory.poisoned({rows, q_width}, c.type);
  forward.output = output;
  forward.log_sum_exp = memory.poisoned({c.batch, c.heads, c.queries}, DType::f32);
  attention_forward(memory.stream(), forward);
  AttentionBackward backward;
  backward.shape = forward.shape;
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.output = forward.output;
  backward.log_sum_exp = forward.log_sum_exp;
  backward.d_output = memory.uniform("d_output", {rows, q_width}, c.type);
  const TensorView d_q = memory.poisoned({rows, q_width}, c.type);
  const TensorView d_kv = memory.poisoned({key_rows, 2 * kv_width}, c.type);
  backward.d_q = d_q;
  backward.d_k = Matrix(d_kv).columns(0, kv_width);
  backward.d_v = Matrix(d_kv).columns(kv_width, 2 * kv_width);
  attention_backward(memory.stream(), backward);
  // bf16: the twins round probabilities and their gradients at other places inside.
  const bool half = c.type == DType::bf16;
  return {memory.read("output", output, half ? 2 * kBf16 : 2 * kF32),
          memory.read("log_sum_exp", forward.log_sum_exp, half ? kBf16 / 10 : kF32),
          memory.read("d_q", d_q, half ? 4 * kBf16 : 4 * kF32),
          memory.read("d_kv", d_kv, half ? 4 * kBf16 : 4 * kF32)};
}

}  // namespace

void attention_cases(Device& device, CaseList& list) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string t = name_of(type);
    const auto add = [&](const char* name, const AttentionCase& c) {
      list.push_back({"attention_" + t + name, [&device, c] { return run(device, c); }});
    };
    add("_tiny", {type, 1, 3, 3, 1, 1, 8});
    add("_odd", {type, 2, 37, 37, 3, 3, 10});
    add("_d64", {type, 2, 200, 200, 4, 4, 64});
    add("_d64_tiles", {type, 1, 256, 256, 2, 2, 64});
    add("_d128_grouped", {type, 2, 136, 136, 8, 2, 128});
    add("_d32", {type, 3, 130, 130, 2, 1, 32});
    add("_d80", {type, 1, 100, 100, 2, 2, 80});
    add("_d256", {type, 1, 70, 70, 2, 1, 256});
    add("_dropout", {type, 2, 150, 150, 4, 2, 64, 0.2f});
    add("_dropout_d128", {type, 1, 90, 90, 2, 2, 128, 0.1f});
    add("_dropout_d32", {type, 3, 130, 130, 2, 1, 32, 0.5f});
    add("_dropout_d80", {type, 1, 100, 100, 2, 2, 80, 0.1f});
    add("_dropout_tiles", {type, 2, 256, 256, 3, 3, 64, 0.2f});
    add("_dropout_earlier_keys", {type, 2, 70, 90, 4, 2, 64, 0.3f, 101, 52});
    add("_dropout_later_keys", {type, 1, 40, 60, 2, 2, 64, 0.1f, 20, 28});
    add("_earlier_keys", {type, 2, 64, 96, 2, 2, 64, 0, 96, 0});
    add("_middle_keys", {type, 2, 70, 90, 2, 1, 64, 0, 100, 50});
    add("_middle_keys_dropout", {type, 1, 70, 90, 2, 1, 64, 0.3f, 101, 50});
    add("_later_keys", {type, 1, 40, 60, 2, 2, 64, 0, 20, 30});
  }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
