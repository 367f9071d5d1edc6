// Embedding tables, whole and one shard of a split vocabulary.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

struct TableCase {
  DType type;
  int64_t tokens, vocabulary, first_row, rows, width;
  bool positions;
  float dropout;
};

TensorView positions_of(Memory& memory, int64_t tokens) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < tokens; ++i) values.push_back(static_cast<int32_t>(i % 50));
  return memory.integers(values, {tokens});
}

std::vector<Output> run(Device& device, const TableCase& c) {
  Memory memory(device);
  EmbeddingForward forward;
  forward.tokens = memory.random_integers("tokens", c.tokens, c.vocabulary);
  forward.table = memory.uniform("table", {c.rows, c.width}, c.type);
  forward.first_row = c.first_row;
  forward.out = memory.poisoned({c.tokens, c.width}, c.type);
  if (c.positions) {
    forward.positions = positions_of(memory, c.tokens);
    forward.position_table = memory.uniform("positions", {64, c.width}, c.type);
  }
  forward.dropout.probability = c.dropout;
  forward.dropout.site = 2;
  forward.dropout.sequence = 50;
  forward.dropout.state = memory.training_state();
  embedding_forward(memory.stream(), forward);
  EmbeddingBackward backward;
  backward.tokens = forward.tokens;
  backward.positions = forward.positions;
  backward.first_row = c.first_row;
  backward.d_out = memory.uniform("d_out", {c.tokens, c.width}, c.type);
  backward.d_table = memory.uniform("d_table", {c.rows, c.width}, DType::f32);
  if (c.positions)
    backward.d_position_table = memory.uniform("d_positions", {64, c.width}, DType::f32);
  backward.workspace = memory.poisoned({2 * c.tokens}, DType::i32);
  embedding_backward(memory.stream(), backward);
  std::vector<Output> outputs{memory.read("out", forward.out),
                              memory.read("d_table", backward.d_table, 2 * kF32)};
  if (c.positions)
    outputs.push_back(memory.read("d_position_table", backward.d_position_table, 2 * kF32));
  return outputs;
}

}  // namespace

void embedding_cases(Device& device, CaseList& list) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string t = name_of(type);
    const auto add = [&](const char* name, const TableCase& c) {
      list.push_back({"embedding_" + t + name, [&device, c] { return run(device, c); }});
    };
    add("_whole", {type, 700, 301, 0, 301, 96, true, 0});
    add("_dropout", {type, 700, 301, 0, 301, 96, true, 0.2f});
    add("_shard", {type, 700, 301, 100, 100, 768, false, 0});
    add("_few_ids", {type, 2100, 3, 0, 3, 40, true, 0});
    add("_odd", {type, 111, 50, 7, 31, 5, true, 0.5f});
  }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
