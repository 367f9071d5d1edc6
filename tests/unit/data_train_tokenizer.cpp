// Learning a tokenizer: merges by hand, determinism, and that it can be read back.
#include "trireme/data/train_tokenizer.hpp"

#include <gtest/gtest.h>

#include "data/pair_learner.hpp"
#include "support/data_files.hpp"

namespace trireme {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_file;
using Merges = std::vector<std::pair<int32_t, int32_t>>;

TEST(PairLearner, MergesTheMostFrequentPairAgainAndAgain) {
  PairLearner learner;  // the example of Sennrich et al.: low 5, lower 2, newest 6, widest 3
  learner.add("low", 5);
  learner.add("lower", 2);
  learner.add("newest", 6);
  learner.add("widest", 3);
  // es 9 (the smaller ids of es and st), es+t 9, lo 7, lo+w 7, ew 6 (of ne, ew, w+est: smallest)
  EXPECT_EQ(learner.learn(5), (Merges{{'e', 's'}, {256, 't'}, {'l', 'o'}, {258, 'w'}, {'e', 'w'}}));
}

TEST(PairLearner, OverlapsAreCountedAfterTheMerge) {
  PairLearner learner;
  learner.add("aaaaa", 2);
  // aa aa a; then aa+aa comes twice, as does aa+a: a (97) is smaller than 256.
  EXPECT_EQ(learner.learn(9), (Merges{{'a', 'a'}, {256, 'a'}, {256, 257}}));
}

TEST(PairLearner, EndsWhereNothingComesTwice) {
  PairLearner learner;
  learner.add("abc", 1);
  EXPECT_EQ(learner.learn(5), Merges{});
}

TEST(TrainTokenizer, WritesAFileThatEncodes) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += "{\"text\": \"the cat and the h\u00e4t sat, the end\"}\n";
  write_file(dir / "in.jsonl", lines);
  TrainTokenizerOptions options;
  options.input.inputs = {dir / "in.jsonl"};
  options.input.output = dir / "tokenizer.json";
  options.vocab = 270;
  const TrainTokenizerReport report = train_tokenizer(options);
  EXPECT_EQ(report.vocab, 270);
  const auto tokenizer = make_tokenizer(dir / "tokenizer.json");
  EXPECT_EQ(tokenizer->vocab(), 270);
  EXPECT_EQ(tokenizer->end_of_document(), 269);
  std::vector<int32_t> ids;
  tokenizer->encode(" the the", ids);
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_GE(ids[0], 256);
  const std::string text = "the h\u00e4t \xFF", first = test::read_file(dir / "tokenizer.json");
  std::string back;
  ids.clear();
  tokenizer->encode(text, ids);
  tokenizer->decode(ids, back);
  EXPECT_EQ(back, text);
  train_tokenizer(options);
  EXPECT_EQ(test::read_file(dir / "tokenizer.json"), first);
}

TEST(TrainTokenizer, ErrorsLeaveNothing) {
  const TempDir dir;
  write_file(dir / "in.jsonl", "{\"text\": \"x\"}\n{}\n");
  write_file(dir / "none", "");
  TrainTokenizerOptions options;
  options.input.inputs = {dir / "in.jsonl"};
  options.input.output = dir / "tokenizer.json";
  options.vocab = 256;
  expect_error(ExitCode::usage, {"256", "257"}, [&] { train_tokenizer(options); });
  options.vocab = 300;
  expect_error(ExitCode::bad_data, {"in.jsonl:2", "no key"}, [&] { train_tokenizer(options); });
  options.input.inputs = {dir / "none"};
  expect_error(ExitCode::bad_data, {"no text"}, [&] { train_tokenizer(options); });
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"in.jsonl", "none"}));
}

}  // namespace
}  // namespace trireme
