// What training reads: mock data, random windows, splits, masks, and the errors of open_data.
#include "trireme/data/token_source.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "support/data_files.hpp"
#include "support/sha256.hpp"
#include "trireme/data/mock_dataset.hpp"
#include "trireme/data/random_windows.hpp"
#include "trireme/data/targets.hpp"

namespace trireme {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_dataset;

std::vector<int32_t> sample_of(const TokenSource& source, int64_t index, int64_t sequence) {
  std::vector<int32_t> tokens(static_cast<size_t>(sequence + 1));
  source.sample(index, tokens);
  return tokens;
}

TEST(MockDataset, LengthsAsNumpy) {
  const MockDataset mock(50257);
  const SequenceLengths& lengths = mock.sequences();
  ASSERT_EQ(lengths.count(), 100000);
  const std::vector<int32_t> head{3484, 2609, 2094, 1105, 1261, 168,  309,  68,
                                  718,  3331, 2660, 3738, 2063, 2485, 3976, 2988};
  const std::vector<int32_t> tail{2592, 61, 100, 769};
  EXPECT_TRUE(std::equal(head.begin(), head.end(), lengths.values().begin()));
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), lengths.values().end() - 4));
  EXPECT_EQ(lengths.tokens(), 204637097);
  EXPECT_EQ(test::Sha256::hex(std::as_bytes(lengths.values())),
            "ed8f44f17361fd0c689e0af757ac685fff85bc309c50f698ffb2aac84ebd4cea");
}

TEST(MockDataset, CountsAndEnds) {
  const MockDataset mock(61);
  std::vector<int32_t> tokens(68);  // sequence 7 has 68 tokens
  mock.read(7, 0, tokens);
  EXPECT_EQ(tokens[0], 1);
  EXPECT_EQ(tokens[59], 60);
  EXPECT_EQ(tokens[60], 0);
  EXPECT_EQ(tokens[66], 6);
  EXPECT_EQ(tokens[67], 60);  // end of document
  std::vector<int32_t> middle(3);
  mock.read(7, 59, middle);
  EXPECT_EQ(middle, (std::vector<int32_t>{60, 0, 1}));
}

TEST(MockDataset, MegatronsFirstSample) {
  const MockDataset mock(50257);
  const GptOrder order(
      mock.sequences(),
      {.range = {true, 0, 33333}, .sequence = 1024, .requested = 1000, .seed = 1234});
  EXPECT_EQ(order.tokens_per_epoch(), 68190290);
  EXPECT_EQ(order.plan().epochs, 1);
  EXPECT_EQ(order.samples(), 66592);
  const std::vector<int32_t> documents{30903, 11571, 3134, 32473, 27454, 4409};
  const std::vector<int64_t> shuffle{33493, 6306, 7239, 22929};
  for (size_t i = 0; i < documents.size(); ++i) EXPECT_EQ(order.document_index()[i], documents[i]);
  for (size_t i = 0; i < shuffle.size(); ++i)
    EXPECT_EQ(order.shuffled(static_cast<int64_t>(i)), shuffle[i]);
  EXPECT_EQ(order.place(order.shuffled(0)), (SamplePlace{16816, 116}));
}

TEST(OpenData, MockIsSplitInThirdsWhateverTheSplitSays) {
  const DataSources sources = open_data({.kind = DataKind::mock,
                                         .split = "1,0,0",
                                         .sequence = 1024,
                                         .vocab = 50257,
                                         .train_samples = 1000,
                                         .validation_samples = 10});
  ASSERT_NE(sources.train, nullptr);
  EXPECT_EQ(sources.train->samples(), 66592);
  std::vector<int32_t> expected(1025);
  std::iota(expected.begin(), expected.end(), 117);
  EXPECT_EQ(sample_of(*sources.train, 0, 1024), expected);
  ASSERT_NE(sources.validation, nullptr);
  EXPECT_EQ(sources.test, nullptr);
  EXPECT_NE(sources.train->description().find("68190290 tokens"), std::string::npos);
}

TEST(UniformBelow, IsUniformAndUnbiased) {
  constexpr uint64_t kBound = 7;
  std::vector<int> counts(kBound);
  for (uint64_t s = 0; s < 70000; ++s) ++counts[uniform_below(kBound, 99, s)];
  double chi2 = 0;
  for (int c : counts) chi2 += std::pow(c - 10000.0, 2) / 10000.0;
  EXPECT_LT(chi2, 22.5);  // 6 degrees of freedom, p = 0.001
  // Two thirds of the 64-bit range: without rejection the first half would come twice as often.
  const uint64_t bound = 0xAAAAAAAAAAAAAAABull;
  int low = 0;
  for (uint64_t s = 0; s < 20000; ++s) low += uniform_below(bound, 5, s) < bound / 2 ? 1 : 0;
  EXPECT_NEAR(low, 10000, 300);
  EXPECT_EQ(uniform_below(1, 3, 4), 0u);
}

TEST(RandomWindows, ReachBothEndsAndDependOnSeedSplitAndNumber) {
  const SplitRange range{true, 100, 110};
  const RandomWindows windows(range, 7, 1, DataSplit::train);  // starts 100, 101, 102
  std::set<int64_t> starts;
  for (int64_t s = 0; s < 200; ++s) starts.insert(windows.start(s));
  EXPECT_EQ(starts, (std::set<int64_t>{100, 101, 102}));

  const SplitRange wide{true, 0, int64_t{1} << 40};
  const RandomWindows a(wide, 64, 1, DataSplit::train), b(wide, 64, 1, DataSplit::train),
      c(wide, 64, 2, DataSplit::train), d(wide, 64, 1, DataSplit::validation);
  EXPECT_EQ(a.start(int64_t{1} << 35), b.start(int64_t{1} << 35));
  EXPECT_NE(a.start(0), a.start(1));
  EXPECT_NE(a.start(0), c.start(0));
  EXPECT_NE(a.start(0), d.start(0));
  EXPECT_NE(a.start(0), a.start(int64_t{1} << 32));
}

// The starts are part of what a run means: pinned, from an independent implementation in Python.
TEST(RandomWindows, PinnedStarts) {
  const SplitRange range{true, 0, 1003855};
  const std::vector<int64_t> samples{0, 1, 2, int64_t{1} << 33};
  const std::vector<int64_t> train{279092, 972573, 441188, 956464};
  const std::vector<int64_t> validation{318563, 979382, 890498, 299991};
  const RandomWindows a(range, 64, 1234, DataSplit::train);
  const RandomWindows b(range, 64, 1234, DataSplit::validation);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(a.start(samples[i]), train[i]);
    EXPECT_EQ(b.start(samples[i]), validation[i]);
  }
  // A third of these words are drawn again.
  const std::vector<uint64_t> wide{11584089128468865530ull, 457587806626317024ull,
                                   9693721918576869911ull, 10874474554165997845ull};
  for (size_t i = 0; i < wide.size(); ++i)
    EXPECT_EQ(uniform_below(0xAAAAAAAAAAAAAAABull, 5, i), wide[i]);
}

class SmallCorpus : public ::testing::Test {
 protected:
  SmallCorpus() {
    test::Documents documents;
    for (int32_t i = 0; i < 10; ++i) {
      std::vector<int32_t> ids(10);
      std::iota(ids.begin(), ids.end(), 10 * i);
      documents.push_back({ids});
    }
    write_dataset(options_.path, documents);
  }

  TempDir dir_;
  DataOptions options_{.kind = DataKind::indexed,
                       .path = dir_ / "corpus",
                       .split = "0.85,0.15",
                       .order = DataOrder::random,
                       .sequence = 7,
                       .seed = 3,
                       .vocab = 100,
                       .train_samples = 500,
                       .validation_samples = 300};
};

TEST_F(SmallCorpus, WindowsCrossDocumentsAndStayInTheirSplit) {
  const DataSources sources = open_data(options_);
  std::set<int32_t> train, validation;
  for (int64_t s = 0; s < 500; ++s) {
    const std::vector<int32_t> tokens = sample_of(*sources.train, s, 7);
    for (size_t i = 1; i < 8; ++i) EXPECT_EQ(tokens[i], tokens[0] + static_cast<int32_t>(i));
    train.insert(tokens[0]);
  }
  for (int64_t s = 0; s < 300; ++s) validation.insert(sample_of(*sources.validation, s, 7)[0]);
  EXPECT_EQ(*train.begin(), 0);
  EXPECT_EQ(*train.rbegin(), 84 - 7);
  EXPECT_EQ(train.size(), 78u);
  EXPECT_EQ(*validation.begin(), 85);
  EXPECT_EQ(*validation.rbegin(), 99 - 7);
  EXPECT_EQ(sources.train->samples(), 500);
  EXPECT_THROW(sample_of(*sources.train, 500, 7), Error);
  EXPECT_THROW(sample_of(*sources.train, -1, 7), Error);
}

TEST_F(SmallCorpus, MegatronOrderSplitsSequences) {
  options_.order = DataOrder::megatron;
  options_.validation_samples = kOneEpoch;
  const DataSources sources = open_data(options_);
  EXPECT_EQ(sources.validation->samples(), 2);  // 0.85 * 10 rounds to the even 8; (20 - 1) / 7
  EXPECT_GE(sources.train->samples(), 500);
  std::set<int32_t> seen;
  for (int64_t s = 0; s < 500; ++s)
    for (int32_t id : sample_of(*sources.train, s, 7)) seen.insert(id);
  EXPECT_EQ(*seen.rbegin(), 79);
  EXPECT_EQ(seen.size(), 80u);
}

TEST_F(SmallCorpus, EmptySplitsThatAreWantedAreRefused) {
  for (DataOrder order : {DataOrder::megatron, DataOrder::random}) {
    options_.order = order;
    options_.split = "1";
    expect_error(ExitCode::bad_config, {"validation split is empty", "corpus"},
                 [&] { open_data(options_); });
    options_.validation_samples = 0;
    EXPECT_EQ(open_data(options_).validation, nullptr);
    options_.validation_samples = 1;
  }
  options_.order = DataOrder::megatron;
  options_.split = "99,1";  // 9.9 rounds to 10: present, but empty
  expect_error(ExitCode::bad_config, {"validation split is empty", "0 of 10 sequences"},
               [&] { open_data(options_); });
}

TEST_F(SmallCorpus, ContradictionsAreRefused) {
  options_.sequence = 15;
  expect_error(ExitCode::bad_config, {"validation", "15 of 100 tokens", "takes 16"},
               [&] { open_data(options_); });
  options_.sequence = 0;
  expect_error(ExitCode::bad_config, {"sequence"}, [&] { open_data(options_); });
  options_.sequence = 7;
  options_.seed = uint64_t{1} << 32;
  EXPECT_NO_THROW(open_data(options_));
  options_.order = DataOrder::megatron;
  expect_error(ExitCode::bad_config, {"seed 4294967296"}, [&] { open_data(options_); });
  options_.seed = 1;
  options_.vocab = 50;
  const DataSources sources = open_data(options_);
  expect_error(ExitCode::bad_data, {"corpus.bin", "document", "vocabulary of 50"}, [&] {
    for (int64_t s = 0; s < 500; ++s) sample_of(*sources.train, s, 7);
  });
}

TEST(MakeTargets, MasksByInputAndByPad) {
  const std::vector<int32_t> tokens{5, 9, 6, 9, 9, 7, kPadToken, kPadToken};
  std::vector<int32_t> inputs(7), targets(7);
  std::vector<float> mask(7);
  make_targets(tokens, {}, inputs, targets, mask);
  EXPECT_EQ(inputs, (std::vector<int32_t>{5, 9, 6, 9, 9, 7, 0}));
  EXPECT_EQ(targets, (std::vector<int32_t>{9, 6, 9, 9, 7, 0, 0}));
  EXPECT_EQ(mask, (std::vector<float>{1, 1, 1, 1, 1, 0, 0}));
  make_targets(tokens, {.end_of_document = 9, .mask_end_of_document = true}, inputs, targets, mask);
  EXPECT_EQ(mask, (std::vector<float>{1, 0, 1, 0, 0, 0, 0}));
}

// BR-17: a mean over tokens, not of means, needs the masks of all samples to be counted together.
TEST(MakeTargets, CountsOfUnequalSamplesAddUp) {
  std::vector<int32_t> inputs(4), targets(4);
  std::vector<float> a(4), b(4);
  const TargetOptions options{.end_of_document = 9, .mask_end_of_document = true};
  make_targets(std::vector<int32_t>{9, 9, 9, 1, 2}, options, inputs, targets, a);
  make_targets(std::vector<int32_t>{1, 2, 3, 4, 5}, options, inputs, targets, b);
  EXPECT_EQ(std::accumulate(a.begin(), a.end(), 0.0f), 1.0f);
  EXPECT_EQ(std::accumulate(b.begin(), b.end(), 0.0f), 4.0f);
}

}  // namespace
}  // namespace trireme
