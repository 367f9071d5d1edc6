// Split ranges, against Megatron's (formats note 2.1), and the walk of samples to ranks (2.12).
#include "trireme/data/split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "support/data_files.hpp"
#include "trireme/data/batch_walk.hpp"

namespace trireme {
namespace {

using test::expect_error;
using Range = std::pair<int64_t, int64_t>;
constexpr Range kAbsent{-1, -1};

std::vector<Range> sequences(const char* text, int64_t n) {
  std::vector<Range> ranges;
  for (const SplitRange& r : split_sequences(parse_split(text), n))
    ranges.push_back(r.present ? Range{r.first, r.last} : kAbsent);
  return ranges;
}

TEST(Split, SequencesAsMegatron) {
  using R = std::vector<Range>;
  EXPECT_EQ(sequences("969,30,1", 1000), (R{{0, 969}, {969, 999}, {999, 1000}}));
  EXPECT_EQ(sequences("969, 30, 1", 37), (R{{0, 36}, {36, 37}, {37, 37}}));
  EXPECT_EQ(sequences("969/30/1", 10), (R{{0, 10}, {10, 10}, {10, 10}}));
  EXPECT_EQ(sequences("98,2,0", 37), (R{{0, 36}, {36, 37}, kAbsent}));
  EXPECT_EQ(sequences("1,1,1", 10), (R{{0, 3}, {3, 7}, {7, 10}}));
  EXPECT_EQ(sequences("1,1,1", 100000), (R{{0, 33333}, {33333, 66667}, {66667, 100000}}));
  EXPECT_EQ(sequences("0.9,0.05,0.05", 37), (R{{0, 33}, {33, 35}, {35, 37}}));
  EXPECT_EQ(sequences("100", 7), (R{{0, 7}, kAbsent, kAbsent}));
  EXPECT_EQ(sequences("1,1", 5), (R{{0, 2}, {2, 5}, kAbsent}));  // 2.5 rounds to the even 2
}

TEST(Split, TokensAsNanoGpt) {
  const auto ranges = split_tokens(parse_split("0.9,0.1"), 1115394);
  EXPECT_EQ(ranges[0].last, 1003854);
  EXPECT_EQ(ranges[1].first, 1003854);
  EXPECT_EQ(ranges[1].last, 1115394);
  EXPECT_FALSE(ranges[2].present);
  EXPECT_EQ(split_tokens(parse_split("90,10,0"), 1115394)[0].last, 1003854);
}

TEST(Split, PartsCoverEverythingOnce) {
  for (const char* text : {"969,30,1", "0.6,0.3,0.1", "1,1,1", "7,0,3", "0,0,5", ".1,.2,.3"})
    for (int64_t n : {0, 1, 2, 9, 10, 11, 1000003}) {
      int64_t next = 0;
      for (const SplitRange& r : split_tokens(parse_split(text), n)) {
        if (!r.present) continue;
        EXPECT_EQ(r.first, next) << text << " of " << n;
        EXPECT_LE(r.first, r.last);
        next = r.last;
      }
      EXPECT_EQ(next, n) << text;
    }
}

TEST(Split, RefusesNonsense) {
  for (const char* text : {"", "0,0,0", "1,2,3,4", "-1,2", "a,b", "1.2.3", ".", "1e3"})
    expect_error(ExitCode::bad_config, {"split"}, [&] { parse_split(text); });
}

// BR-29: 10 samples, micro-batches of 2.
TEST(BatchWalk, EveryLayoutReadsTheSameGlobalBatches) {
  for (int64_t dp : {1, 2, 3, 4, 6})
    for (int64_t micro : {1, 2, 4}) {
      const BatchWalk walk{.global = 48, .micro = micro, .data_parallel = dp};
      ASSERT_NO_THROW(walk.check());
      std::vector<int64_t> ids;
      for (int64_t r = 0; r < dp; ++r)
        for (int64_t m = 0; m < walk.micro_batches(); ++m)
          for (int64_t b = 0; b < micro; ++b) ids.push_back(walk.sample(96, m, r, b));
      std::sort(ids.begin(), ids.end());
      std::vector<int64_t> expected(48);
      std::iota(expected.begin(), expected.end(), 96);
      EXPECT_EQ(ids, expected) << "dp " << dp << " micro " << micro;
    }
}

TEST(BatchWalk, MegatronsFormula) {
  const BatchWalk walk{.global = 12, .micro = 2, .data_parallel = 3};
  EXPECT_EQ(walk.micro_batches(), 2);
  EXPECT_EQ(walk.sample(100, 1, 2, 1), 100 + 1 * 6 + 2 * 2 + 1);
}

TEST(BatchWalk, AnIncompleteLastBatchIsDroppedForAll) {
  for (int64_t dp : {1, 3}) {
    const BatchWalk walk{.global = 6, .micro = 2, .data_parallel = dp};
    EXPECT_EQ(walk.batches_left(10, 0), 1);
    EXPECT_EQ(walk.batches_left(10, 6), 0);
    EXPECT_EQ(walk.batches_left(10, 20), 0);
  }
}

TEST(BatchWalk, RefusesWhatDoesNotDivide) {
  expect_error(ExitCode::bad_config, {"10", "2 x dp 3 = 6"},
               [] { BatchWalk{.global = 10, .micro = 2, .data_parallel = 3}.check(); });
  expect_error(ExitCode::bad_config, {"positive"}, [] { BatchWalk{.global = 0}.check(); });
}

}  // namespace
}  // namespace trireme
