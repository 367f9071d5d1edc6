// Causal attention against an f64 reference: offsets, shared key heads, strides, dropout, storage
// types; the backward pass against finite differences; results over key ranges merge; memory does
// not grow.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <fstream>
#include <string>

#include "support/attention_reference.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::DifferenceOptions;
using test::expect_gradient;
using test::kNone;
using test::Problem;
using test::Reference;
using test::reference;
using test::scaled_error;
using test::TestMatrix;
using test::weighted_sum;

AttentionShape shape_of(int64_t batch, int64_t length, int64_t heads, int64_t kv_heads,
                        int64_t head_size) {
  AttentionShape shape;
  shape.batch = batch;
  shape.query_length = shape.key_length = length;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  shape.scale = 1 / std::sqrt(static_cast<float>(head_size));
  return shape;
}

class Attention : public testing::Test {
 protected:
  Attention() {
    state_.seed = 77;
    state_.step = 5;
    state_.first_sample = (int64_t{1} << 33) + 11;
    state_.training = 1;
  }
  AttentionShape with_dropout(AttentionShape shape, float probability = 0.3f) {
    shape.first_head = 2;
    shape.dropout.probability = probability;
    shape.dropout.site = 19;
    shape.dropout.sample_offset = 6;
    shape.dropout.state = &state_;
    return shape;
  }
  // Forward and backward against the reference.
  void expect_right(const AttentionShape& shape, DType type) {
    const double tolerance = type == DType::f32 ? 4e-6 : 2e-2;
    Problem problem(shape, type);
    const Reference expected = reference(problem);
    problem.forward(device_);
    const auto lse = problem.log_sum_exp.get();
    for (size_t i = 0; i < lse.size(); ++i) {
      if (expected.log_sum_exp[i] == kNone) {
        ASSERT_EQ(static_cast<double>(lse[i]), kNone);
      } else {
        ASSERT_NEAR(lse[i], expected.log_sum_exp[i],
                    1e-5 + 2e-7 * std::abs(expected.log_sum_exp[i]));
      }
    }
    EXPECT_LT(scaled_error(problem.output.get(), expected.output), tolerance);
    problem.backward(device_);
    EXPECT_LT(scaled_error(problem.d_q.get(), expected.d_q), tolerance);
    EXPECT_LT(scaled_error(problem.d_k.get(), expected.d_k), tolerance);
    EXPECT_LT(scaled_error(problem.d_v.get(), expected.d_v), tolerance);
    EXPECT_TRUE(problem.padding_untouched());
  }

  Device device_{DeviceOptions{.threads = 2}};
  StepState state_{};
};

TEST_F(Attention, EqualsTheReference) {
  for (const DType type : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(type));
    expect_right(shape_of(3, 37, 6, 2, 20), type);  // two-thirds of a tile, groups of three heads
    expect_right(shape_of(1, 131, 3, 1, 7), type);  // two tiles and a rest, one group
    expect_right(shape_of(2, 64, 2, 2, 64), type);  // exactly one tile
    expect_right(shape_of(1, 1, 1, 1, 1), type);
    expect_right(shape_of(1, 70, 1, 1, 256), type);  // the largest head
  }
}

TEST_F(Attention, DropoutEqualsTheReference) {
  for (const DType type : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(type));
    expect_right(with_dropout(shape_of(3, 37, 6, 2, 20)), type);
    AttentionShape shape = with_dropout(shape_of(2, 90, 2, 1, 9), 0.75f);
    shape.query_length = 71;
    shape.query_offset = 30;
    shape.key_offset = 7;  // not a multiple of a group of words
    expect_right(shape, type);
  }
}

TEST_F(Attention, DropoutIsOffWhenNotTraining) {
  AttentionShape shape = with_dropout(shape_of(1, 40, 2, 1, 8));
  Problem dropped(shape, DType::f32);
  dropped.forward(device_);
  state_.training = 0;
  Problem whole(shape, DType::f32);
  whole.forward(device_);
  shape.dropout = {};
  Problem plain(shape, DType::f32);
  plain.forward(device_);
  EXPECT_EQ(whole.output.get(), plain.output.get());
  EXPECT_NE(dropped.output.get(), plain.output.get());
  EXPECT_EQ(dropped.log_sum_exp.get(), plain.log_sum_exp.get());
}

TEST_F(Attention, OffsetsMoveTheDiagonal) {
  for (const auto& [queries, query_offset, keys, key_offset] :
       {std::array<int64_t, 4>{5, 60, 65, 0},
        {37, 0, 80, 20},
        {70, 100, 31, 90},
        {3, 0, 9, 50},
        {1, 129, 130, 0}}) {
    AttentionShape shape = shape_of(2, 1, 4, 2, 12);
    shape.query_length = queries;
    shape.query_offset = query_offset;
    shape.key_length = keys;
    shape.key_offset = key_offset;
    SCOPED_TRACE(fmt::format("{} queries from {}, {} keys from {}", queries, query_offset, keys,
                             key_offset));
    if (key_offset >= query_offset + queries) {
      Problem problem(shape, DType::f32);
      problem.forward(device_);
      problem.backward(device_);
      for (const TestMatrix* x : {&problem.output, &problem.d_q, &problem.d_k, &problem.d_v})
        for (const float value : x->get()) ASSERT_EQ(value, 0);
      for (const float value : problem.log_sum_exp.get())
        ASSERT_EQ(static_cast<double>(value), kNone);
    } else {
      expect_right(shape, DType::f32);
    }
  }
}

// Keys cut in two ranges, as ranks of a ring hold them: outputs merge by log-sum-exp, gradients
// add.
TEST_F(Attention, KeyRangesMerge) {
  const int64_t length = 90, cut = 41;
  const AttentionShape whole_shape = with_dropout(shape_of(1, length, 4, 2, 16));
  Problem whole(whole_shape, DType::f32, 1, 0);
  whole.forward(device_);
  whole.backward(device_);
  std::vector<Problem> parts;
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, cut}, {cut, length}}) {
    AttentionShape shape = whole_shape;
    shape.key_offset = first;
    shape.key_length = last - first;
    Problem& part = parts.emplace_back(shape, DType::f32, 1, 0);
    const auto rows = [&](const TestMatrix& x) {
      const auto values = x.get();
      return std::vector<float>(values.begin() + first * 32, values.begin() + last * 32);
    };
    part.k.set(rows(whole.k));
    part.v.set(rows(whole.v));
    part.forward(device_);
  }
  const auto out0 = parts[0].output.get(), out1 = parts[1].output.get();
  const auto lse0 = parts[0].log_sum_exp.get(), lse1 = parts[1].log_sum_exp.get();
  std::vector<float> output(out0.size()), lse(lse0.size());
  for (size_t h = 0; h < 4; ++h) {
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      const size_t at = h * static_cast<size_t>(length) + i;
      const float largest = std::max(lse0[at], lse1[at]);
      lse[at] = largest + std::log(std::exp(lse0[at] - largest) + std::exp(lse1[at] - largest));
      for (size_t e = 0; e < 16; ++e) {
        const size_t x = (i * 4 + h) * 16 + e;
        output[x] = std::exp(lse0[at] - lse[at]) * out0[x] + std::exp(lse1[at] - lse[at]) * out1[x];
      }
    }
  }
  const auto expect_close = [](const std::vector<float>& values,
                               const std::vector<float>& expected) {
    EXPECT_LT(scaled_error(values, std::vector<double>(expected.begin(), expected.end())), 3e-6);
  };
  expect_close(output, whole.output.get());
  expect_close(lse, whole.log_sum_exp.get());
  std::vector<float> d_q, d_k, d_v;
  for (Problem& part : parts) {
    part.output.set(output);
    part.log_sum_exp.set(lse);
    part.backward(device_);
    const auto dq = part.d_q.get(), dk = part.d_k.get(), dv = part.d_v.get();
    d_q.resize(dq.size());
    for (size_t i = 0; i < dq.size(); ++i) d_q[i] += dq[i];
    d_k.insert(d_k.end(), dk.begin(), dk.end());
    d_v.insert(d_v.end(), dv.begin(), dv.end());
  }
  expect_close(d_q, whole.d_q.get());
  expect_close(d_k, whole.d_k.get());
  expect_close(d_v, whole.d_v.get());
}

TEST_F(Attention, GradientsAreDifferences) {
  for (const float probability : {0.0f, 0.2f}) {
    const AttentionShape shape = with_dropout(shape_of(2, 21, 4, 2, 6), probability);
    Problem problem(shape, DType::f32, 9, 0);
    problem.forward(device_);
    problem.backward(device_);
    const auto weights = problem.d_output.get();
    const auto check = [&](TestMatrix& input, const TestMatrix& gradient, const char* name) {
      std::vector<float> x = input.get();
      const auto loss = [&] {
        input.set(x);
        problem.forward(device_);
        return weighted_sum(problem.output.get(), weights);
      };
      expect_gradient(x, gradient.get(), loss, {.samples = 40, .name = name});
      input.set(x);
    };
    check(problem.q, problem.d_q, "q");
    check(problem.k, problem.d_k, "k");
    check(problem.v, problem.d_v, "v");
  }
}

// One walk (many heads for the threads) and two passes (few) sum in the same order.
TEST_F(Attention, ResultsDoNotDependOnThreads) {
  const AttentionShape shape = with_dropout(shape_of(1, 150, 4, 2, 16));
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 7}) {
    const Device device{DeviceOptions{.threads = threads}};
    Problem problem(shape, DType::f32);
    problem.forward(device_);
    problem.backward(device_);
    const std::vector<std::vector<float>> results = {problem.output.get(), problem.d_q.get(),
                                                     problem.d_k.get(), problem.d_v.get()};
    if (first.empty()) first = results;
    EXPECT_TRUE(results == first) << threads << " threads";
  }
}

// What a rank of a tensor-parallel group (some heads) or a micro-batch (some sequences) computes
// is, bit for bit, its piece of the whole.
TEST_F(Attention, PiecesEqualTheWhole) {
  const AttentionShape shape = with_dropout(shape_of(2, 75, 4, 2, 8));
  Problem whole(shape, DType::f32), pieces(shape, DType::f32);
  whole.forward(device_);
  whole.backward(device_);
  const auto lse = whole.log_sum_exp.get();
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t g = 0; g < 2; ++g) {
      AttentionShape part = shape;
      part.batch = 1;
      part.heads = 2;
      part.kv_heads = 1;
      part.first_head += 2 * g;
      part.dropout.sample_offset += b;
      const auto cut = [&](TestMatrix& x, int64_t width) {
        Matrix piece = x.view();
        piece.data += static_cast<size_t>(b * 75 * piece.stride) * sizeof(float);
        piece.rows = 75;
        return piece.columns(g * width, (g + 1) * width);
      };
      TestMatrix sums(2, 75, DType::f32);
      const Matrix q = cut(pieces.q, 16), k = cut(pieces.k, 8), v = cut(pieces.v, 8);
      const Matrix output = cut(pieces.output, 16);
      attention_forward(device_.compute(), {part, q, k, v, output, sums.tensor({1, 2, 75})});
      attention_backward(device_.compute(),
                         {part, q, k, v, output, cut(pieces.d_output, 16), sums.tensor({1, 2, 75}),
                          cut(pieces.d_q, 16), cut(pieces.d_k, 8), cut(pieces.d_v, 8)});
      const auto first = lse.begin() + (b * 4 + g * 2) * 75;
      EXPECT_EQ(sums.get(), std::vector<float>(first, first + 150));
    }
  }
  EXPECT_EQ(pieces.output.get(), whole.output.get());
  EXPECT_EQ(pieces.d_q.get(), whole.d_q.get());
  EXPECT_EQ(pieces.d_k.get(), whole.d_k.get());
  EXPECT_EQ(pieces.d_v.get(), whole.d_v.get());
}

TEST_F(Attention, LaterTokensChangeNothing) {
  const int64_t length = 130, width = 24, kept = 70;
  Problem problem(shape_of(1, length, 3, 3, 8), DType::f32);
  problem.forward(device_);
  const auto before = problem.output.get();
  for (TestMatrix* x : {&problem.q, &problem.k, &problem.v}) {
    auto values = x->get();
    for (size_t i = kept * width; i < values.size(); ++i) values[i] = 50 - values[i];
    x->set(values);
  }
  problem.forward(device_);
  const auto after = problem.output.get();
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + kept * width, after.begin()));
  EXPECT_FALSE(
      std::equal(before.begin() + kept * width, before.end(), after.begin() + kept * width));
}

TEST_F(Attention, LargeScoresDoNotOverflow) {
  AttentionShape shape = shape_of(1, 80, 2, 1, 8);
  shape.scale = 100;
  Problem problem(shape, DType::f32);
  problem.forward(device_);
  problem.backward(device_);
  EXPECT_LT(scaled_error(problem.output.get(), reference(problem).output), 1e-4);
  EXPECT_LT(scaled_error(problem.d_v.get(), reference(problem).d_v), 1e-4);
}

TEST_F(Attention, BrokenValuesAreSeen) {
  Problem problem(shape_of(1, 70, 1, 1, 8), DType::f32);
  auto values = problem.k.get();
  values[3] = std::numeric_limits<float>::quiet_NaN();
  problem.k.set(values);
  problem.forward(device_);
  for (const float value : problem.output.get()) ASSERT_TRUE(std::isnan(value));
}

// A tensor of T x T scores would be 1 GiB; the work memory is what it was for one token. With equal
// values the output is that value everywhere, since the probabilities of a query add up to 1.
TEST_F(Attention, MemoryIsLinearInTheLength) {
  const size_t before = workspace_bytes();
  EXPECT_LT(before, size_t{64} << 20);
  Problem problem(shape_of(1, 16384, 1, 1, 8), DType::f32, 1, 0);
  problem.v.set(std::vector<float>(16384 * 8, 0.5f));
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    size_t pages = 0, used = 0;
    file >> pages >> used;
    return used * 4096;
  };
  const size_t start = resident();
  problem.forward(device_);
  problem.backward(device_);
  EXPECT_LT(resident(), start + (size_t{256} << 20));
  EXPECT_EQ(workspace_bytes(), before);
  for (const float value : problem.output.get()) ASSERT_NEAR(value, 0.5f, 1e-5f);
}

TEST_F(Attention, WrongShapesAreErrors) {
  Problem problem(shape_of(2, 5, 4, 2, 8), DType::f32);
  const auto refuse = [&](const AttentionShape& shape) {
    Problem other = problem;
    other.shape = shape;
    EXPECT_THROW(
        attention_forward(device_.compute(), {shape, other.q.view(), other.k.view(), other.v.view(),
                                              other.output.view(), problem.lse()}),
        Error);
  };
  AttentionShape shape = problem.shape;
  shape.kv_heads = 3;
  refuse(shape);
  shape = problem.shape;
  shape.head_size = 300;
  refuse(shape);
  shape = problem.shape;
  shape.query_length = 6;
  refuse(shape);
  shape = with_dropout(problem.shape, 1.0f);
  refuse(shape);
}

}  // namespace
}  // namespace trireme
