// Cross-entropy over a split vocabulary: golden losses, padding, masks, gradients, storage types.
#include <gtest/gtest.h>

#include <limits>

#include "support/finite_difference.hpp"
#include "support/host_tensor.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::expect_close;
using test::HostTensor;
using test::random_values;

constexpr int64_t kRows = 7;
constexpr int64_t kVocabulary = 61;
constexpr size_t kN = kRows;
constexpr size_t kV = kVocabulary;

// Everything that a run over all shards leaves behind.
struct Result {
  std::vector<float> loss;      // [n]
  std::vector<float> gradient;  // [n, V]
  StepState state{};
};

class CrossEntropyTest : public testing::Test {
 protected:
  // Splits the columns over `shards` ranks of `columns` columns each, padding included, and plays
  // the two all-reduces. Padding holds large values, which must count for nothing.
  Result run(const std::vector<float>& logits, int64_t shards, int64_t columns, DType type,
             bool write_gradient = true) {
    Result result;
    std::vector<HostTensor> pieces;
    std::vector<HostTensor> row_max;
    std::vector<HostTensor> sums;
    std::vector<CrossEntropy> calls;
    HostTensor loss({kRows}, DType::f32);
    for (int64_t s = 0; s < shards; ++s) {
      pieces.emplace_back(Shape{kRows, columns}, padded(logits, s * columns, columns), type);
      row_max.emplace_back(Shape{kRows}, DType::f32);
      sums.emplace_back(Shape{2, kRows}, DType::f32);
    }
    for (size_t s = 0; s < pieces.size(); ++s) {
      const int64_t first = static_cast<int64_t>(s) * columns;
      calls.push_back({.logits = pieces[s].view(),
                       .first_row = first,
                       .valid = std::clamp(kVocabulary - first, int64_t{0}, columns),
                       .targets = targets_.view(),
                       .mask = mask_.view(),
                       .row_max = row_max[s].view(),
                       .sums = sums[s].view(),
                       .loss = loss.view(),
                       .write_gradient = write_gradient,
                       .count = s == 0,
                       .state = &result.state});
      cross_entropy_max(device_.compute(), calls.back());
    }
    all_reduce(row_max, [](float a, float b) { return std::max(a, b); });
    for (const CrossEntropy& call : calls) cross_entropy_sums(device_.compute(), call);
    all_reduce(sums, [](float a, float b) { return a + b; });
    for (const CrossEntropy& call : calls) cross_entropy_finish(device_.compute(), call);
    result.loss = loss.values();
    result.gradient = gathered(pieces, columns, write_gradient);
    return result;
  }

  static std::vector<float> padded(const std::vector<float>& logits, int64_t first,
                                   int64_t columns) {
    std::vector<float> piece;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = first; c < first + columns; ++c)
        piece.push_back(c < kVocabulary ? logits[static_cast<size_t>(r * kVocabulary + c)] : 50.0f);
    return piece;
  }

  template <class Combine>
  static void all_reduce(std::vector<HostTensor>& parts, const Combine& combine) {
    std::vector<float> total = parts[0].values();
    for (size_t s = 1; s < parts.size(); ++s)
      for (size_t i = 0; i < total.size(); ++i) total[i] = combine(total[i], parts[s].f32()[i]);
    for (HostTensor& part : parts) std::copy(total.begin(), total.end(), part.f32().begin());
  }

  // The pieces as one matrix without padding, whose gradient must be zero.
  static std::vector<float> gathered(const std::vector<HostTensor>& pieces, int64_t columns,
                                     bool written) {
    std::vector<float> whole(kN * kV);
    for (size_t s = 0; s < pieces.size(); ++s) {
      const std::vector<float> values = pieces[s].values();
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t width = static_cast<size_t>(columns);
        const size_t column = s * width + i % width;
        if (column < kV)
          whole[i / width * kV + column] = values[i];
        else
          EXPECT_EQ(values[i], written ? 0.0f : 50.0f) << "padding column " << column;
      }
    }
    return whole;
  }

  // Loss and gradient in f64.
  Result reference(const std::vector<float>& logits) {
    Result result;
    result.loss.resize(kN);
    result.gradient.resize(kN * kV);
    for (size_t r = 0; r < kN; ++r) {
      if (mask_.f32()[r] == 0) continue;
      double sum = 0;
      for (size_t c = 0; c < kV; ++c) sum += std::exp(static_cast<double>(logits[r * kV + c]));
      const size_t target = static_cast<size_t>(ids_[r]);
      result.loss[r] = static_cast<float>(std::log(sum) - logits[r * kV + target]);
      for (size_t c = 0; c < kV; ++c)
        result.gradient[r * kV + c] = static_cast<float>(
            std::exp(static_cast<double>(logits[r * kV + c])) / sum - (c == target ? 1 : 0));
    }
    return result;
  }

  Device device_{DeviceOptions{}};
  const std::vector<int32_t> ids_{0, 60, 15, 16, 33, 48, 7};
  HostTensor targets_{{kRows}, ids_};
  HostTensor mask_{{kRows}, std::vector<float>{1, 1, 0, 1, 1, 1, 1}};
};

// BR-01: with an all-zero output layer the loss is ln 61 for any split; 4.127 or 4.159 would mean
// that pads sit in the softmax.
TEST_F(CrossEntropyTest, UniformLossIsTheLogarithmOfTheVocabulary) {
  const std::vector<float> zeros(kN * kV, 0.0f);
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [shards, columns] : {std::pair{1, 61}, std::pair{1, 64}, std::pair{2, 32},
                                          std::pair{4, 16}, std::pair{5, 16}, std::pair{4, 32}}) {
      const Result result = run(zeros, shards, columns, type);
      for (size_t r = 0; r < kN; ++r)
        EXPECT_NEAR(result.loss[r], r == 2 ? 0 : 4.110873864, 1e-6) << shards << "x" << columns;
      EXPECT_NEAR(result.state.sums[0], 6 * 4.110873864, 1e-5);
      EXPECT_EQ(result.state.sums[1], 6);
    }
}

TEST_F(CrossEntropyTest, MatchesReferenceForAnySplit) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::vector<float> logits =
        HostTensor({kRows, kVocabulary}, random_values(kN * kV, 1, 8), type).values();
    const Result expected = reference(logits);
    for (const auto& [shards, columns] : {std::pair{1, 61}, std::pair{1, 64}, std::pair{2, 32},
                                          std::pair{4, 16}, std::pair{3, 24}, std::pair{4, 24}}) {
      const Result result = run(logits, shards, columns, type);
      expect_close(result.loss, expected.loss, 1e-6, "loss");
      expect_close(result.gradient, expected.gradient, type == DType::bf16 ? 2e-3 : 3e-7,
                   "gradient");
    }
  }
}

TEST_F(CrossEntropyTest, GradientMatchesDifferences) {
  std::vector<float> logits = random_values(kN * kV, 2, 3);
  const std::vector<float> gradient = run(logits, 2, 32, DType::f32).gradient;
  const auto loss = [&] {
    const Result result = run(logits, 1, 61, DType::f32, false);
    return test::weighted_sum(result.loss, std::vector<float>(kN, 1.0f));
  };
  test::expect_gradient(logits, gradient, loss, {.samples = kN * kV});
}

// Rows that do not count leave no trace, even when they are broken.
TEST_F(CrossEntropyTest, MaskedRowsAreIgnored) {
  std::vector<float> logits = random_values(kN * kV, 3, 3);
  const Result clean = run(logits, 4, 16, DType::f32);
  std::fill_n(logits.begin() + 2 * kVocabulary, kVocabulary,
              std::numeric_limits<float>::quiet_NaN());
  const Result broken = run(logits, 4, 16, DType::f32);
  EXPECT_EQ(broken.loss, clean.loss);
  EXPECT_EQ(broken.gradient, clean.gradient);
  EXPECT_EQ(broken.state.sums[0], clean.state.sums[0]);
  for (size_t c = 0; c < kV; ++c) EXPECT_EQ(clean.gradient[2 * kV + c], 0);
}

TEST_F(CrossEntropyTest, CountedNanReachesTheLoss) {
  std::vector<float> logits = random_values(kN * kV, 3, 3);
  logits[5 * kV + 20] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(run(logits, 4, 16, DType::f32).state.sums[0]));
  EXPECT_TRUE(std::isnan(run(logits, 1, 61, DType::bf16).state.sums[0]));
}

TEST_F(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  std::vector<float> logits = random_values(kN * kV, 4, 3);
  const Result base = run(logits, 4, 16, DType::f32);
  for (float& x : logits) x += 1024;
  const Result moved = run(logits, 4, 16, DType::f32);
  expect_close(moved.loss, base.loss, 1e-3, "loss");
  std::vector<float> peak(kN * kV, -1e30f);
  for (size_t r = 0; r < kN; ++r) peak[r * kV + static_cast<size_t>(ids_[r])] = 3e38f;
  const Result certain = run(peak, 4, 16, DType::f32);
  EXPECT_EQ(certain.loss, std::vector<float>(kN, 0.0f));
  EXPECT_EQ(certain.gradient, std::vector<float>(kN * kV, 0.0f));
}

// Micro-batches add up; only the rank that counts adds.
TEST_F(CrossEntropyTest, CountsIntoTheState) {
  HostTensor logits({kRows, kVocabulary}, random_values(kN * kV, 5));
  HostTensor row_max({kRows}, DType::f32);
  HostTensor sums({2, kRows}, DType::f32);
  HostTensor loss({kRows}, DType::f32);
  StepState state{};
  CrossEntropy call{.logits = logits.view(),
                    .valid = kVocabulary,
                    .targets = targets_.view(),
                    .mask = mask_.view(),
                    .row_max = row_max.view(),
                    .sums = sums.view(),
                    .loss = loss.view(),
                    .write_gradient = false,
                    .state = &state};
  const std::vector<std::byte> before = logits.bytes();
  cross_entropy_max(device_.compute(), call);
  cross_entropy_sums(device_.compute(), call);
  cross_entropy_finish(device_.compute(), call);
  const float once = state.sums[0];
  cross_entropy_finish(device_.compute(), call);
  EXPECT_FLOAT_EQ(state.sums[0], 2 * once);
  EXPECT_EQ(state.sums[1], 12);
  EXPECT_EQ(logits.bytes(), before);
  call.count = false;
  cross_entropy_finish(device_.compute(), call);
  EXPECT_EQ(state.sums[1], 12);
}

// A column of padding is nobody's target, even where its number would fit.
TEST_F(CrossEntropyTest, PaddingIsNoTarget) {
  HostTensor logits({kRows, 64}, std::vector<float>(kN * 64, 2.0f));
  HostTensor targets({kRows}, std::vector<int32_t>{62, 61, 63, 60, 0, -1, 64});
  HostTensor row_max({kRows}, DType::f32);
  HostTensor sums({2, kRows}, DType::f32);
  HostTensor loss({kRows}, DType::f32);
  const CrossEntropy call{.logits = logits.view(),
                          .valid = kVocabulary,
                          .targets = targets.view(),
                          .mask = mask_.view(),
                          .row_max = row_max.view(),
                          .sums = sums.view(),
                          .loss = loss.view(),
                          .count = false};
  cross_entropy_max(device_.compute(), call);
  cross_entropy_sums(device_.compute(), call);
  const std::vector<float> target_logits(sums.f32().begin() + kRows, sums.f32().end());
  EXPECT_EQ(target_logits, (std::vector<float>{0, 0, 0, 2, 2, 0, 0}));
  cross_entropy_finish(device_.compute(), call);
  for (size_t c = 0; c < 64; ++c) EXPECT_EQ(logits.f32()[c] < 0, false) << c;
}

TEST_F(CrossEntropyTest, WrongCallsAreRefused) {
  HostTensor logits({kRows, kVocabulary}, random_values(kN * kV, 5));
  HostTensor row_max({kRows}, DType::f32);
  HostTensor sums({2, kRows}, DType::f32);
  HostTensor loss({kRows}, DType::f32);
  const CrossEntropy good{.logits = logits.view(),
                          .valid = kVocabulary,
                          .targets = targets_.view(),
                          .mask = mask_.view(),
                          .row_max = row_max.view(),
                          .sums = sums.view(),
                          .loss = loss.view(),
                          .count = false};
  EXPECT_NO_THROW(cross_entropy_max(device_.compute(), good));
  CrossEntropy bad = good;
  bad.valid = kVocabulary + 1;
  EXPECT_THROW(cross_entropy_max(device_.compute(), bad), Error);
  bad = good;
  bad.count = true;  // no state
  EXPECT_THROW(cross_entropy_finish(device_.compute(), bad), Error);
  bad = good;
  bad.loss = TensorView();
  EXPECT_THROW(cross_entropy_sums(device_.compute(), bad), Error);
}

}  // namespace
}  // namespace trireme
