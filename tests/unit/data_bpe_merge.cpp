// Merging against its definition: the lowest rank first, the leftmost of equals.
#include "data/bpe_merge.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace trireme {
namespace {

using Ids = std::vector<int32_t>;

// The definition, step by step.
Ids by_definition(const MergeTable& merges, Ids symbols) {
  while (true) {
    Merge best;
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = merges.find(symbols[i], symbols[i + 1]);
      if (merge.rank < best.rank) best = merge, place = i;
    }
    if (best.rank == Merge::kNever) return symbols;
    symbols[place] = best.id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

// Random merges of few symbols: ranks in any order, results that merge again, several pairs of one
// rank (as in tiktoken's files).
TEST(BpeMerge, EqualsTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    MergeTable merges(60);
    for (int i = 0; i < 40; ++i)
      merges.add(static_cast<int32_t>(random() % 12), static_cast<int32_t>(random() % 12),
                 {static_cast<uint32_t>(random() % 30), static_cast<int32_t>(random() % 12)});
    for (size_t n : {1u, 2u, 3u, 7u, 39u, 40u, 41u, 42u, 97u, 300u}) {
      Ids symbols(n);
      for (int32_t& symbol : symbols) symbol = static_cast<int32_t>(random() % 6);
      Ids merged{-5};
      merged.insert(merged.end(), symbols.begin(), symbols.end());
      merge_symbols(merges, 1, merged);
      EXPECT_EQ(merged[0], -5);
      merged.erase(merged.begin());
      ASSERT_EQ(merged, by_definition(merges, symbols)) << "round " << round << ", n " << n;
    }
  }
}

TEST(BpeMerge, AMillionEqualSymbolsAreNotQuadratic) {
  MergeTable merges(20);
  for (int32_t i = 0; i < 20; ++i) merges.add(i, i, {static_cast<uint32_t>(i), i + 1});
  Ids symbols(1'000'000, 0);
  const auto start = std::chrono::steady_clock::now();
  merge_symbols(merges, 0, symbols);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  int64_t total = 0;
  for (int32_t id : symbols) total += int64_t{1} << id;
  EXPECT_EQ(total, 1'000'000);
  EXPECT_EQ(symbols.size(), 7u);  // bits of 1,000,000
  EXPECT_LT(time.count(), 20.0);  // a quadratic way takes hours
}

TEST(MergeTable, FindsWhatWasAddedAndRefusesRepeats) {
  MergeTable table(1000);
  for (int32_t i = 0; i < 1000; ++i)
    EXPECT_TRUE(table.add(i, 7 * i, {static_cast<uint32_t>(i), i + 1}));
  EXPECT_FALSE(table.add(5, 35, {1, 1}));
  for (int32_t i = 0; i < 1000; ++i) EXPECT_EQ(table.find(i, 7 * i).id, i + 1);
  EXPECT_EQ(table.find(5, 36).rank, Merge::kNever);
  EXPECT_EQ(MergeTable(0).find(0, 0).rank, Merge::kNever);
}

}  // namespace
}  // namespace trireme
