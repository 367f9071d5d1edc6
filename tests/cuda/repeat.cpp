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
};

// Output and gradients of q and k, v.
Results run_attention(Device& device, const Attention& a) {
  Memory memory(device);
  const int64_t rows = a.batch * a.length, q = a.heads * a.size, kv = a.kv_heads * a.size;
  AttentionForward f;
  f.shape.batch = a.batch;
  f.shape.query_length = f.shape.key_length = a.length;
  f.shape.heads = a.heads;
  f.shape.kv_heads = a.kv_heads;
  f.shape.head_size = a.size;
  f.shape.scale = 0.1f;
  f.shape.deterministic = a.deterministic;
  f.shape.dropout.probability = a.dropout;
  f.shape.dropout.sequence = a.length;
  f.shape.dropout.state = memory.training_state();
  const Matrix packed = memory.uniform("qkv", {rows, q + 2 * kv}, DType::bf16);
  f.q = packed.columns(0, q);
  f.k = packed.columns(q, q + kv);
  f.v = packed.columns(q + kv, q + 2 * kv);
  const TensorView output = memory.poisoned({rows, q}, DType::bf16);
  f.output = output;
  f.log_sum_exp = memory.poisoned({a.batch, a.heads, a.length}, DType::f32);
  attention_forward(memory.stream(), f);
  const TensorView d = memory.poisoned({rows, q + 2 * kv}, DType::bf16);
  const Matrix d_packed(d);
  const AttentionBackward b{f.shape,
                            f.q,
                            f.k,
                            f.v,
                            f.output,
                            memory.uniform("d", {rows, q}, DType::bf16),
                            f.log_sum_exp,
                            d_packed.columns(0, q),
                            d_packed.columns(q, q + kv),
                            d_packed.columns(q + kv, q + 2 * kv)};
  attention_backward(memory.stream(), b);
  return {memory.read("output", output), memory.read("d", d)};
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
  for (const Attention& a : {Attention{2, 1024, 4, 4, 64}, Attention{1, 2048, 8, 2, 128},
                             Attention{2, 512, 4, 2, 64, true, 0.1f}})
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
