// Sampling against probabilities worked by hand, and draws against Philox itself.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/random.hpp"
#include "trireme/model/sampling.hpp"

namespace trireme {
namespace {

// Probabilities 0.1, 0.4, 0.05, 0.25, 0.2 at temperature 1.
const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.05f),
                                    std::log(0.25f), std::log(0.2f)};

// How often each token is drawn, of 20,000.
std::map<int32_t, double> shares(const Sampling& sampling, std::span<const float> logits) {
  constexpr int kDraws = 20000;
  std::map<int32_t, double> result;
  for (uint64_t i = 0; i < kDraws; ++i) result[draw_token(logits, sampling, 3, i)] += 1.0 / kDraws;
  return result;
}

void expect_shares(const Sampling& sampling, const std::map<int32_t, double>& want) {
  const std::map<int32_t, double> have = shares(sampling, kLogits);
  EXPECT_EQ(have.size(), want.size());
  for (const auto& [token, share] : want) {
    ASSERT_TRUE(have.contains(token)) << token;
    EXPECT_NEAR(have.at(token), share, 4 * std::sqrt(share * (1 - share) / 20000) + 1e-9) << token;
  }
}

TEST(Sampling, TemperatureZeroTakesTheLargestAndOfEqualsTheFirst) {
  EXPECT_EQ(draw_token(kLogits, {}, 0, 0), 1);
  EXPECT_EQ(draw_token(std::vector<float>{2, 7, 7, 1}, {}, 5, 9), 1);
  EXPECT_EQ(draw_token(std::vector<float>{-3}, {}, 5, 9), 0);
}

TEST(Sampling, AllTokens) {
  expect_shares({.temperature = 1}, {{0, 0.1}, {1, 0.4}, {2, 0.05}, {3, 0.25}, {4, 0.2}});
}

// At temperature 0.5 probabilities are squared: 0.01, 0.16, 0.0025, 0.0625, 0.04, sum 0.275.
TEST(Sampling, TemperatureSharpens) {
  expect_shares({.temperature = 0.5}, {{0, 0.01 / 0.275},
                                       {1, 0.16 / 0.275},
                                       {2, 0.0025 / 0.275},
                                       {3, 0.0625 / 0.275},
                                       {4, 0.04 / 0.275}});
}

TEST(Sampling, TopK) {
  expect_shares({.temperature = 1, .top_k = 1}, {{1, 1}});
  expect_shares({.temperature = 1, .top_k = 3},
                {{1, 0.4 / 0.85}, {3, 0.25 / 0.85}, {4, 0.2 / 0.85}});
  expect_shares({.temperature = 1, .top_k = 99},
                {{0, 0.1}, {1, 0.4}, {2, 0.05}, {3, 0.25}, {4, 0.2}});
  // Of equal ones at the edge the first.
  const std::vector<float> equal = {1, 2, 1, 1};
  for (const auto& [token, share] : shares({.temperature = 1, .top_k = 2}, equal))
    EXPECT_TRUE(token == 0 || token == 1) << token;
}

// 0.4 + 0.25 = 0.65 is the first sum of falling probabilities at or above 0.6.
TEST(Sampling, TopP) {
  expect_shares({.temperature = 1, .top_p = 0.6}, {{1, 0.4 / 0.65}, {3, 0.25 / 0.65}});
  expect_shares({.temperature = 1, .top_p = 0.3}, {{1, 1}});
  expect_shares({.temperature = 1, .top_p = 0.84},
                {{1, 0.4 / 0.85}, {3, 0.25 / 0.85}, {4, 0.2 / 0.85}});
}

// Of the three that top_k leaves (0.47, 0.29, 0.24 when they alone are counted) two make 0.7.
TEST(Sampling, TopKThenTopP) {
  expect_shares({.temperature = 1, .top_k = 3, .top_p = 0.7}, {{1, 0.4 / 0.65}, {3, 0.25 / 0.65}});
}

TEST(Sampling, DrawsAreAddressed) {
  const PhiloxWords w = philox(7, 0, 2, 1, stream_key(42, "generate"));
  const uint64_t bits = (uint64_t{w.x} << 32 | w.y) >> 11;
  EXPECT_EQ(draw_at(42, (uint64_t{1} << 32) + 2, 7),
            static_cast<double>(bits) / 9007199254740992.0);
  const Sampling sampling{.temperature = 1, .seed = 42};
  double below = 0;
  const double u = draw_at(42, 6, 11);
  int32_t want = 0;
  for (const double p : {0.1, 0.4, 0.05, 0.25, 0.2}) {
    below += p;
    if (u < below) break;
    ++want;
  }
  EXPECT_EQ(draw_token(kLogits, sampling, 6, 11), want);
}

// Worked out by another program. Fixed for good: a text that was drawn once can be drawn again.
TEST(Sampling, GoldenDraws) {
  std::vector<int32_t> tokens;
  for (uint64_t position = 0; position < 16; ++position)
    tokens.push_back(
        draw_token(kLogits, {.temperature = 0.8, .top_k = 4, .top_p = 0.95}, 0, position));
  EXPECT_EQ(tokens, (std::vector<int32_t>{3, 1, 1, 0, 4, 4, 4, 1, 1, 1, 1, 1, 1, 3, 3, 3}));
}

TEST(Sampling, BrokenLogitsAreErrors) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_THROW(draw_token(std::vector<float>{1, bad}, {}, 0, 0), Error);
}

}  // namespace
}  // namespace trireme
