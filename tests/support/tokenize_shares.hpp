// A tokenization by several shares, as several processes do it, in one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "trireme/data/tokenize_text.hpp"

namespace trireme::test {

// Pieces (0: as many as suit) are dealt out at random, and moved into place, while the first are
// read. Returns the reports of the shares.
inline std::vector<TokenizeReport> tokenize_in_shares(const TokenizeOptions& options, int count,
                                                      int pieces = 0) {
  std::vector<std::unique_ptr<TokenizeWork>> works;
  for (int i = 0; i < count; ++i)
    works.push_back(std::make_unique<TokenizeWork>(options, Share{i, count, pieces}));
  const std::vector<std::string> files = works.back()->begin_join();
  for (const auto& work : works) work->join_into(files);
  const auto join_finished = [&] {
    for (int process = 0; process < count; ++process) {
      const auto finished = works[static_cast<size_t>(process)]->finished();
      for (const auto& work : works) work->learn(process, finished);
    }
    for (const auto& work : works) work->bring();
  };
  std::mt19937 random(static_cast<unsigned>(count + options.threads));
  std::vector<int> order(static_cast<size_t>(works.front()->pieces()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  for (const int piece : order) {
    TokenizeWork& work = *works[random() % works.size()];
    work.take(piece);
    work.advance(static_cast<int64_t>(random() % 200));
    if (random() % 3 == 0) join_finished();
  }
  for (const auto& work : works)
    while (work->advance(100)) {
    }
  join_finished();
  std::vector<TokenizeReport> reports;
  for (const auto& work : works) {
    EXPECT_EQ(work->left_bytes(), 0);
    work->commit();
    reports.push_back(work->report());
  }
  works.back()->finish_join();
  return reports;
}

}  // namespace trireme::test
