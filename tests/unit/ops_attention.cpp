// Causal attention against an f64 reference: offsets, shared key heads, strides, dropout, storage
// types; the backward pass against finite differences; results over key ranges merge; memory does
// not grow.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <fstream>
#include <string>

#include "support/ops_data.hpp"
#include "trireme/ops/dropout_mask.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::DifferenceOptions;
using test::expect_gradient;
using test::random_values;
using test::scaled_error;
using test::TestMatrix;
using test::weighted_sum;

constexpr double kNone = -std::numeric_limits<double>::infinity();

// One attention problem with all its tensors: inputs random, outputs poisoned.
struct Problem {
  Problem(const AttentionShape& s, DType type, uint32_t seed = 1, int64_t padding = 3)
      : shape(s),
        q(TestMatrix::random(query_rows(), query_width(), type, seed, padding, 2)),
        k(TestMatrix::random(key_rows(), key_width(), type, seed + 1, padding, 2)),
        v(TestMatrix::random(key_rows(), key_width(), type, seed + 2, padding)),
        d_output(TestMatrix::random(query_rows(), query_width(), type, seed + 3, padding)),
        output(query_rows(), query_width(), type, padding),
        d_q(query_rows(), query_width(), type, padding),
        d_k(key_rows(), key_width(), type, padding),
        d_v(key_rows(), key_width(), type, padding),
        log_sum_exp(s.batch * s.heads, s.query_length, DType::f32) {}

  int64_t query_rows() const { return shape.batch * shape.query_length; }
  int64_t key_rows() const { return shape.batch * shape.key_length; }
  int64_t query_width() const { return shape.heads * shape.head_size; }
  int64_t key_width() const { return shape.kv_heads * shape.head_size; }
  TensorView lse() { return log_sum_exp.tensor({shape.batch, shape.heads, shape.query_length}); }
  void forward(Device& device) {
    attention_forward(device.compute(),
                      {shape, q.view(), k.view(), v.view(), output.view(), lse()});
  }
  void backward(Device& device) {
    attention_backward(device.compute(),
                       {shape, q.view(), k.view(), v.view(), output.view(), d_output.view(), lse(),
                        d_q.view(), d_k.view(), d_v.view()});
  }
  bool padding_untouched() const {
    return output.padding_untouched() && d_q.padding_untouched() && d_k.padding_untouched() &&
           d_v.padding_untouched();
  }

  AttentionShape shape;
  TestMatrix q, k, v, d_output, output, d_q, d_k, d_v, log_sum_exp;
};

// 0 or 1 / (1 - p), from the address arithmetic alone.
double dropout_factor(const AttentionShape& s, int64_t b, int64_t h, int64_t query, int64_t key) {
  if (s.dropout.probability == 0 || s.dropout.state->training == 0) return 1;
  const StepState& state = *s.dropout.state;
  const uint64_t address =
      dropout_key(state.seed, state.step, s.dropout.site, static_cast<uint32_t>(s.first_head + h));
  const PhiloxWords w =
      dropout_words(address, static_cast<uint32_t>(key / 4), static_cast<uint32_t>(query),
                    state.first_sample + s.dropout.sample_offset + b);
  const uint32_t word[] = {w.x, w.y, w.z, w.w};
  const bool dropped = word[key % 4] < dropout_threshold(s.dropout.probability);
  return dropped ? 0 : 1 / (1 - static_cast<double>(s.dropout.probability));
}

struct Reference {
  std::vector<double> output, log_sum_exp, d_q, d_k, d_v;
};

// Plain loops over one query at a time.
Reference reference(const Problem& problem) {
  const AttentionShape& s = problem.shape;
  const auto q = problem.q.get(), k = problem.k.get(), v = problem.v.get();
  const auto d_out = problem.d_output.get();
  const size_t size = static_cast<size_t>(s.head_size);
  Reference r;
  r.output.assign(q.size(), 0);
  r.d_q.assign(q.size(), 0);
  r.d_k.assign(k.size(), 0);
  r.d_v.assign(k.size(), 0);
  const double scale = static_cast<double>(s.scale);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.query_length; ++i) {
        const size_t qi = static_cast<size_t>((b * s.query_length + i) * s.heads + h) * size;
        const auto key_at = [&](int64_t j) {
          return static_cast<size_t>((b * s.key_length + j) * s.kv_heads +
                                     h / (s.heads / s.kv_heads)) *
                 size;
        };
        const int64_t seen =
            std::clamp<int64_t>(s.query_offset + i - s.key_offset + 1, 0, s.key_length);
        std::vector<double> p, slope;
        double largest = kNone, sum = 0, mean_slope = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0, d = 0;
          for (size_t e = 0; e < size; ++e) {
            score += static_cast<double>(q[qi + e]) * static_cast<double>(k[key_at(j) + e]);
            d += static_cast<double>(d_out[qi + e]) * static_cast<double>(v[key_at(j) + e]);
          }
          p.push_back(score * scale);
          slope.push_back(d);
          largest = std::max(largest, p.back());
        }
        for (double& x : p) sum += x = std::exp(x - largest);
        r.log_sum_exp.push_back(seen == 0 ? kNone : largest + std::log(sum));
        for (size_t j = 0; j < p.size(); ++j) {
          p[j] /= sum;
          slope[j] *=
              dropout_factor(s, b, h, s.query_offset + i, s.key_offset + static_cast<int64_t>(j));
          mean_slope += p[j] * slope[j];
        }
        for (size_t j = 0; j < p.size(); ++j) {
          const size_t kj = key_at(static_cast<int64_t>(j));
          const double dropped = p[j] * dropout_factor(s, b, h, s.query_offset + i,
                                                       s.key_offset + static_cast<int64_t>(j));
          const double ds = p[j] * (slope[j] - mean_slope) * scale;
          for (size_t e = 0; e < size; ++e) {
            r.output[qi + e] += dropped * static_cast<double>(v[kj + e]);
            r.d_v[kj + e] += dropped * static_cast<double>(d_out[qi + e]);
            r.d_q[qi + e] += ds * static_cast<double>(k[kj + e]);
            r.d_k[kj + e] += ds * static_cast<double>(q[qi + e]);
          }
        }
      }
    }
  }
  return r;
}

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
  EXPECT_LT(resident(), start + before + (size_t{8} << 20));
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
