// Attention of rows that hold several documents: against the f64 reference, against each document
// alone, against finite differences, for any number of threads and cut of the keys.
#include <gtest/gtest.h>
#include <omp.h>

#include <numeric>

#include "support/attention_reference.hpp"

namespace trireme::test {
namespace {

// Starts of documents of these lengths, one row after the other.
std::vector<int32_t> starts_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int32_t> starts;
  for (const std::vector<int64_t>& row : rows) {
    int32_t start = 0;
    for (const int64_t length : row) {
      starts.insert(starts.end(), static_cast<size_t>(length), start);
      start += static_cast<int32_t>(length);
    }
  }
  return starts;
}

TensorView view_of(std::vector<int32_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          {static_cast<int64_t>(values.size())},
          DType::i32};
}

class Documents : public ::testing::Test {
 protected:
  Documents() {
    state_.seed = 3;
    state_.training = 1;
  }
  AttentionShape shape_of(int64_t length, float dropout = 0) {
    AttentionShape shape;
    shape.batch = 2;
    shape.query_length = shape.key_length = length;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_size = 10;
    shape.scale = 0.4f;
    shape.dropout.probability = dropout;
    shape.dropout.state = &state_;
    return shape;
  }
  void expect_right(const AttentionShape& shape, DType type) {
    const double tolerance = type == DType::f32 ? 4e-6 : 2e-2;
    Problem problem(shape, type);
    const Reference want = reference(problem);
    problem.forward(device_);
    const std::vector<float> lse = problem.log_sum_exp.get();
    for (size_t i = 0; i < lse.size(); ++i) {
      if (want.log_sum_exp[i] == kNone)
        ASSERT_EQ(static_cast<double>(lse[i]), kNone) << i;
      else
        ASSERT_NEAR(lse[i], want.log_sum_exp[i], 2e-5) << i;
    }
    EXPECT_LT(scaled_error(problem.output.get(), want.output), tolerance);
    problem.backward(device_);
    EXPECT_LT(scaled_error(problem.d_q.get(), want.d_q), tolerance);
    EXPECT_LT(scaled_error(problem.d_k.get(), want.d_k), tolerance);
    EXPECT_LT(scaled_error(problem.d_v.get(), want.d_v), tolerance);
    EXPECT_TRUE(problem.padding_untouched());
  }
  Device device_{DeviceOptions{.threads = 2}};
  StepState state_{};
};

// Documents longer than tiles, of one token, that end with a tile, and a row of one document.
const std::vector<std::vector<int64_t>> kRows = {{100, 1, 1, 26, 64, 3, 5}, {200}};
const std::vector<std::vector<int64_t>> kOther = {{64, 64, 72}, {1, 190, 9}};

TEST_F(Documents, EqualTheReference) {
  for (const auto& rows : {kRows, kOther}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const float dropout : {0.0f, 0.3f}) {
        for (const int threads : {1, 7}) {  // one walk, two passes
          const Device device{DeviceOptions{.threads = threads}};
          std::vector<int32_t> starts = starts_of(rows);
          AttentionShape shape = shape_of(200, dropout);
          shape.starts = view_of(starts);
          expect_right(shape, type);
        }
      }
    }
  }
}

// A rank of a ring: queries 90 to 159 of the row over keys of any earlier, own or later range, some
// of which a query's document does not reach.
TEST_F(Documents, RangesEqualTheReference) {
  const std::vector<int32_t> all = starts_of(kRows);
  for (const auto& [first, count] :
       {std::pair<int64_t, int64_t>{0, 64}, {0, 90}, {90, 70}, {70, 100}, {128, 64}, {150, 50}}) {
    std::vector<int32_t> starts(all.begin() + 90, all.begin() + 160);
    starts.insert(starts.end(), all.begin() + 290, all.begin() + 360);
    AttentionShape shape = shape_of(70);
    shape.query_offset = 90;
    shape.key_offset = first;
    shape.key_length = count;
    shape.starts = view_of(starts);
    expect_right(shape, DType::f32);
  }
}

TEST_F(Documents, EachIsWhatItIsAlone) {
  std::vector<int32_t> starts = starts_of(kRows);
  AttentionShape shape = shape_of(200);
  shape.starts = view_of(starts);
  Problem packed(shape, DType::f32, 1, 0);
  packed.forward(device_);
  packed.backward(device_);
  std::vector<double> output, d_q, d_k, d_v;  // of every document alone, one behind the other
  const auto append = [](std::vector<double>& all, const TestMatrix& part) {
    const std::vector<float> values = part.get();
    all.insert(all.end(), values.begin(), values.end());
  };
  int64_t first = 0;
  for (const auto& row : kRows) {
    for (const int64_t length : row) {
      AttentionShape one = shape_of(length);
      one.batch = 1;
      Problem alone(one, DType::f32, 1, 0);
      const auto piece = [&](const TestMatrix& x, int64_t width) {
        const std::vector<float> values = x.get();
        return std::vector<float>(values.begin() + first * width,
                                  values.begin() + (first + length) * width);
      };
      alone.q.set(piece(packed.q, 40));
      alone.d_output.set(piece(packed.d_output, 40));
      alone.k.set(piece(packed.k, 20));
      alone.v.set(piece(packed.v, 20));
      alone.forward(device_);
      alone.backward(device_);
      append(output, alone.output);
      append(d_q, alone.d_q);
      append(d_k, alone.d_k);
      append(d_v, alone.d_v);
      first += length;
    }
  }
  // Scaled by the tensor, not the document: the score of a token alone has gradient zero, where
  // only rounding is left.
  EXPECT_LT(scaled_error(packed.output.get(), output), 3e-6);
  EXPECT_LT(scaled_error(packed.d_q.get(), d_q), 3e-6);
  EXPECT_LT(scaled_error(packed.d_k.get(), d_k), 3e-6);
  EXPECT_LT(scaled_error(packed.d_v.get(), d_v), 3e-6);
}

TEST_F(Documents, GradientsAreDifferences) {
  std::vector<int32_t> starts = starts_of({{9, 1, 11}, {3, 18}});
  AttentionShape shape = shape_of(21, 0.2f);
  shape.starts = view_of(starts);
  Problem problem(shape, DType::f32, 9, 0);
  problem.forward(device_);
  problem.backward(device_);
  const std::vector<float> weights = problem.d_output.get();
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

TEST_F(Documents, ResultsDoNotDependOnThreads) {
  std::vector<int32_t> starts = starts_of(kRows);
  AttentionShape shape = shape_of(200, 0.1f);
  shape.starts = view_of(starts);
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

// Nothing of an earlier document is read: not even what is broken there.
TEST_F(Documents, EarlierDocumentsAreNotSeen) {
  std::vector<int32_t> starts = starts_of({{70, 130}, {70, 130}});
  AttentionShape shape = shape_of(200);
  shape.starts = view_of(starts);
  Problem problem(shape, DType::f32, 1, 0);
  problem.forward(device_);
  const std::vector<float> before = problem.output.get();
  std::vector<float> k = problem.k.get();
  for (size_t i = 0; i < 64 * 20; ++i) k[i] = std::numeric_limits<float>::quiet_NaN();
  problem.k.set(k);
  problem.forward(device_);
  const std::vector<float> after = problem.output.get();
  EXPECT_TRUE(std::isnan(after[63 * 40]));
  EXPECT_TRUE(
      std::equal(before.begin() + 128 * 40, before.begin() + 200 * 40, after.begin() + 128 * 40));
}

TEST_F(Documents, WrongStartsAreErrors) {
  const auto refused = [&](std::vector<int32_t> starts) {
    AttentionShape shape = shape_of(4);
    shape.starts = view_of(starts);
    Problem problem(shape, DType::f32);
    EXPECT_THROW(problem.forward(device_), Error);
  };
  refused({0, 0, 2, 1, 0, 0, 0, 0});
  refused({0, 2, 2, 2, 0, 0, 0, 0});
  refused({-1, 0, 0, 0, 0, 0, 0, 0});
  refused({0, 0, 0, 0});
}

}  // namespace
}  // namespace trireme::test
