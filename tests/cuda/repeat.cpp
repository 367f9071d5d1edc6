// The same call twice gives the same bits, whatever else the device does; and what goes in pieces
// equals what does not.
#include <gtest/gtest.h>

#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {
namespace {

using Results = std::vector<Output>;

void expect_same_bits(const std::function<Results()>& run) {
  const Results first = run();
  for (int i = 0; i < 3; ++i) {
    const Results again = run();
    ASSERT_EQ(first.size(), again.size());
    for (size_t o = 0; o < first.size(); ++o)
      EXPECT_EQ(first[o].values, again[o].values) << first[o].name;
  }
}

struct Attention {
  int64_t batch, length, heads, kv_heads, size;
  bool deterministic = true;
  float dropout = 0;
  int64_t documents = 0;  // of equal length in each row; 0: rows are not cut
};

// The first of its document, for each row.
std::vector<int32_t> starts_of(const Attention& a) {
  std::vector<int32_t> starts;
  const int64_t length = a.length / a.documents;
  for (int64_t row = 0; row < a.batch * a.length; ++row)
    starts.push_back(static_cast<int32_t>(row % a.length / length * length));
  return starts;
}

// A call on random q, k and v, packed side by side, and its gradient.
class AttentionCall {
 public:
  AttentionCall(Device& device, const Attention& a) : memory_(device) {
    const int64_t rows = a.batch * a.length, q = a.heads * a.size, kv = a.kv_heads * a.size;
    forward_.shape = shape_of(a);
    const Matrix packed = memory_.uniform("qkv", {rows, q + 2 * kv}, DType::bf16);
    forward_.q = packed.columns(0, q);
    forward_.k = packed.columns(q, q + kv);
    forward_.v = packed.columns(q + kv, q + 2 * kv);
    output_ = memory_.poisoned({rows, q}, DType::bf16);
    forward_.output = output_;
    forward_.log_sum_exp = memory_.poisoned({a.batch, a.heads, a.length}, DType::f32);
    attention_forward(memory_.stream(), forward_);
    d_packed_ = memory_.poisoned({rows, q + 2 * kv}, DType::bf16);
    const Matrix d(d_packed_);
    backward_ = {forward_.shape,       forward_.q,
                 forward_.k,           forward_.v,
                 forward_.output,      memory_.uniform("d", {rows, q}, DType::bf16),
                 forward_.log_sum_exp, d.columns(0, q),
                 d.columns(q, q + kv), d.columns(q + kv, q + 2 * kv)};
  }
  void run_gradient() { attention_backward(memory_.stream(), backward_); }
  Output output() { return memory_.read("output", output_); }
  Output gradient() {
    run_gradient();
    return memory_.read("d", d_packed_);
  }

 private:
  AttentionShape shape_of(const Attention& a) {
    AttentionShape shape;
    shape.batch = a.batch;
    shape.query_length = shape.key_length = a.length;
    shape.heads = a.heads;
    shape.kv_heads = a.kv_heads;
    shape.head_size = a.size;
    shape.scale = 0.1f;
    shape.deterministic = a.deterministic;
    shape.dropout.probability = a.dropout;
    shape.dropout.sequence = a.length;
    shape.dropout.state = memory_.training_state();
    if (a.documents == 0) return shape;
    shape.starts = memory_.integers(starts_of(a), {a.batch * a.length});
    shape.documents = a.batch * a.documents;
    shape.longest_document = a.length / a.documents;
    return shape;
  }

  Memory memory_;
  AttentionForward forward_;
  AttentionBackward backward_;
  TensorView output_, d_packed_;
};

// Output and gradients of q and k, v.
Results run_attention(Device& device, const Attention& a) {
  AttentionCall call(device, a);
  return {call.output(), call.gradient()};
}

double relative_error(const Output& expected, const Output& got) {
  double difference = 0, squares = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double e = expected.values[i], g = got.values[i];
    difference += (e - g) * (e - g);
    squares += e * e;
  }
  return std::sqrt(difference / squares);
}

}  // namespace

TEST(Repeat, NormBackward) {
  Device device({});
  expect_same_bits([&] {
    Memory memory(device);
    NormBackward call;
    call.x = memory.uniform("x", {3000, 1600}, DType::bf16);
    call.gain = memory.uniform("gain", {1600}, DType::bf16);
    call.d_normalized = memory.uniform("d", {3000, 1600}, DType::bf16);
    call.d_residual = memory.uniform("residual", {3000, 1600}, DType::bf16);
    call.d_gain = memory.zeros({1600}, DType::f32);
    call.d_bias = memory.zeros({1600}, DType::f32);
    norm_backward(memory.stream(), call);
    return Results{memory.read("d_residual", call.d_residual), memory.read("d_gain", call.d_gain),
                   memory.read("d_bias", call.d_bias)};
  });
}

TEST(Repeat, EmbeddingBackward) {
  Device device({});
  expect_same_bits([&] {
    Memory memory(device);
    EmbeddingBackward call;
    call.tokens = memory.random_integers("tokens", 8192, 17);
    call.positions = memory.random_integers("positions", 8192, 1024);
    call.d_out = memory.uniform("d", {8192, 256}, DType::bf16);
    call.d_table = memory.zeros({17, 256}, DType::f32);
    call.d_position_table = memory.zeros({1024, 256}, DType::f32);
    call.workspace = memory.poisoned({2 * 8192}, DType::i32);
    embedding_backward(memory.stream(), call);
    return Results{memory.read("table", call.d_table),
                   memory.read("positions", call.d_position_table)};
  });
}

TEST(Repeat, SumsOverRowsAndNorm) {
  Device device({});
  expect_same_bits([&] {
    Memory memory(device);
    StepState values{};
    StepState* state = memory.state(values);
    const TensorView x = memory.uniform("x", {5000, 771}, DType::f32);
    const TensorView sum = memory.zeros({771}, DType::f32);
    add_column_sums(memory.stream(), x, sum);
    add_squared_norm(memory.stream(), x, state);
    return Results{memory.read("sum", sum), memory.read_sums(state)};
  });
}

TEST(Repeat, Products) {
  Device device({});
  expect_same_bits([&] {
    Memory memory(device);
    Gemm call;
    call.a = memory.uniform("a", {8192, 512}, DType::bf16);
    call.b = memory.uniform("b", {8192, 384}, DType::bf16);
    call.transpose_a = true;
    const TensorView c = memory.zeros({512, 384}, DType::f32);
    call.c = c;
    call.beta = 1;
    gemm(memory.stream(), call);
    return Results{memory.read("c", c)};
  });
}

TEST(Repeat, AttentionBackward) {
  Device device({});
  for (const Attention& a :
       {Attention{2, 1024, 4, 4, 64}, Attention{1, 2048, 8, 2, 128},
        Attention{2, 512, 4, 2, 64, true, 0.1f}, Attention{2, 2048, 8, 2, 128, true, 0, 8}})
    expect_same_bits([&] { return run_attention(device, a); });
}

// The deterministic gradient of long sequences wants so much work memory that the call goes in
// pieces.
TEST(Pieces, AttentionBackwardEqualsTheWhole) {
  Device device({});
  for (const Attention& a : {Attention{2, 4096, 16, 4, 128}, Attention{1, 8192, 16, 4, 128},
                             Attention{1, 8192, 12, 12, 64}}) {
    Attention any_order = a;
    any_order.deterministic = false;
    const Results expected = run_attention(device, any_order), got = run_attention(device, a);
    EXPECT_EQ(expected[0].values, got[0].values);
    EXPECT_LT(relative_error(expected[1], got[1]), 2e-3);
  }
}

// Pieces one behind the other, call after call.
TEST(Pieces, ManyCallsGiveTheSameBits) {
  Device device({});
  for (const Attention& a :
       {Attention{2, 4096, 16, 4, 128}, Attention{2, 2048, 8, 2, 128, true, 0, 4}}) {
    AttentionCall call(device, a);
    const Output first = call.gradient();
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 25; ++i) call.run_gradient();
      EXPECT_EQ(first.values, call.gradient().values) << "round " << round;
    }
  }
}

// Documents of equal length are the sequences of a larger batch.
TEST(Pieces, DocumentsEqualSequencesOfTheirOwn) {
  Device device({});
  const Attention apart{2, 1024, 8, 2, 128, true, 0, 4}, alone{8, 256, 8, 2, 128};
  const Results expected = run_attention(device, alone), got = run_attention(device, apart);
  EXPECT_LT(relative_error(expected[0], got[0]), 1e-3);
  EXPECT_LT(relative_error(expected[1], got[1]), 2e-3);
}

// Products of f32: exact by default, rounded inputs where tf32 is allowed.
TEST(Products, TensorFloatIsAChoice) {
  Device exact({}), rounded({.allow_tf32 = true});
  const auto run = [](Device& device) {
    Memory memory(device);
    Gemm call;
    call.a = memory.uniform("a", {512, 512}, DType::f32);
    call.b = memory.uniform("b", {512, 512}, DType::f32);
    const TensorView c = memory.poisoned({512, 512}, DType::f32);
    call.c = c;
    gemm(memory.stream(), call);
    return memory.read("c", c);
  };
  const Output a = run(exact), b = run(rounded);
  EXPECT_GT(relative_error(a, b), 1e-5);
  EXPECT_LT(relative_error(a, b), 2e-3);
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
