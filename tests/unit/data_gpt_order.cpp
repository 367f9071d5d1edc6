// Megatron's sample order, against values of Megatron's own code (formats note 2.3 to 2.9).
#include "trireme/data/gpt_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/data_files.hpp"
#include "support/sha256.hpp"

namespace trireme {
namespace {

using test::expect_error;
using Places = std::vector<std::pair<int64_t, int64_t>>;

// Tokens are 100 * sequence + position.
class NumberedStore : public SequenceStore {
 public:
  explicit NumberedStore(std::vector<int32_t> lengths) : lengths_(std::move(lengths)) {}
  const SequenceLengths& sequences() const override { return lengths_; }
  void read(int64_t sequence, int64_t first, std::span<int32_t> out) const override {
    ASSERT_LE(first + std::ssize(out), lengths_[sequence]);
    for (int32_t& id : out) id = static_cast<int32_t>(100 * sequence + first++);
  }
  std::string name() const override { return "numbered"; }

 private:
  SequenceLengths lengths_;
};

const std::vector<int32_t> kLengths{5, 3, 8, 2, 7, 6, 4, 9, 1, 10};

GptOrder order_of(const SequenceLengths& lengths, int64_t requested, int64_t sequence = 8) {
  return GptOrder(lengths, {.range = {true, 0, lengths.count()},
                            .sequence = sequence,
                            .requested = requested,
                            .seed = 1234});
}

Places places_of(const GptOrder& order) {
  Places places;
  for (int64_t k = 0; k <= order.samples(); ++k)
    places.emplace_back(order.place(k).position, order.place(k).offset);
  return places;
}

std::vector<int64_t> shuffle_of(const GptOrder& order) {
  std::vector<int64_t> numbers;
  for (int64_t k = 0; k < order.samples(); ++k) numbers.push_back(order.shuffled(k));
  return numbers;
}

std::vector<int32_t> documents_of(const GptOrder& order) {
  return {order.document_index().begin(), order.document_index().end()};
}

TEST(GptOrder, WorkedExampleOneEpoch) {
  const SequenceLengths lengths(kLengths);
  const GptOrder order = order_of(lengths, 6);
  EXPECT_EQ(order.plan().epochs, 1);
  EXPECT_FALSE(order.plan().last_epoch_apart);
  EXPECT_EQ(documents_of(order), (std::vector<int32_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  EXPECT_EQ(places_of(order), (Places{{0, 0}, {0, 8}, {1, 7}, {2, 7}, {4, 2}, {6, 4}, {7, 5}}));
  EXPECT_EQ(shuffle_of(order), (std::vector<int64_t>{5, 0, 3, 4, 2, 1}));
}

TEST(GptOrder, WorkedExampleLastEpochApart) {
  const SequenceLengths lengths(kLengths);
  const GptOrder order = order_of(lengths, 9);
  EXPECT_EQ(order.plan().epochs, 2);
  EXPECT_TRUE(order.plan().last_epoch_apart);
  EXPECT_EQ(order.plan().samples_before_last, 6);
  EXPECT_EQ(documents_of(order), (std::vector<int32_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3,  //
                                                       7, 3, 5, 1, 4, 8, 0, 2, 6, 9}));
  EXPECT_EQ(places_of(order), (Places{{0, 0},
                                      {0, 8},
                                      {1, 7},
                                      {2, 7},
                                      {4, 2},
                                      {6, 4},
                                      {7, 5},
                                      {10, 1},
                                      {11, 0},
                                      {13, 0},
                                      {14, 5},
                                      {17, 0},
                                      {18, 0},
                                      {19, 4}}));
  EXPECT_EQ(shuffle_of(order), (std::vector<int64_t>{5, 1, 4, 3, 0, 2, 11, 7, 6, 10, 9, 12, 8}));
}

TEST(GptOrder, WorkedExampleThreeEpochs) {
  const SequenceLengths lengths(kLengths);
  const GptOrder order = order_of(lengths, 15);
  EXPECT_EQ(order.plan().epochs, 3);
  EXPECT_TRUE(order.plan().last_epoch_apart);
  EXPECT_EQ(order.plan().samples_before_last, 13);
  EXPECT_EQ(documents_of(order), (std::vector<int32_t>{3, 3, 2, 6, 4, 5, 4, 0, 8, 8,  //
                                                       7, 1, 0, 9, 7, 1, 9, 2, 6, 5,  //
                                                       8, 1, 7, 6, 9, 5, 4, 3, 0, 2}));
  EXPECT_EQ(places_of(order),
            (Places{{0, 0},  {2, 4},  {4, 0},  {5, 1},  {6, 3},  {7, 4},  {10, 5},
                    {12, 1}, {13, 4}, {14, 2}, {15, 1}, {16, 6}, {17, 4}, {19, 0},
                    {21, 1}, {22, 6}, {24, 1}, {24, 9}, {26, 1}, {28, 0}, {29, 3}}));
  EXPECT_EQ(shuffle_of(order),
            (std::vector<int64_t>{8,  5,  6,  1,  4,  12, 2, 3, 10, 9, 0, 11, 7,  //
                                  14, 13, 18, 15, 17, 16, 19}));
}

TEST(GptOrder, WorkedExampleTokens) {
  const NumberedStore store(kLengths);
  const GptOrder order = order_of(store.sequences(), 6);
  std::vector<int32_t> tokens(9);
  order.read(store, 0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{404, 405, 406, 500, 501, 502, 503, 504, 505}));
  order.read(store, 1, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{700, 701, 702, 703, 704, 705, 706, 707, 708}));
  order.read(store, 2, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{907, 908, 909, 100, 101, 102, 0, 1, 2}));
}

template <class T>
std::string digest(const std::vector<T>& values) {
  return test::Sha256::hex(std::as_bytes(std::span(values))).substr(0, 16);
}

struct LargeCase {
  int64_t requested, epochs, before_last, samples;
  bool apart;
  const char *documents, *places, *shuffle;
};

TEST(GptOrder, LargerCaseDigests) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < 1000; ++i)
    lengths.push_back(static_cast<int32_t>(1 + (7919 * i + 13) % 397));
  const SequenceLengths all(lengths);
  ASSERT_EQ(all.tokens(), 199433);
  for (const LargeCase& c : {LargeCase{1000, 1, 1509, 1509, false, "876051b4c0cd5c20",
                                       "f4fcada8e682f9a9", "9b62e87b4fa41ba9"},
                             LargeCase{1600, 2, 1509, 3019, true, "64e06dc6a959e445",
                                       "9cec68321456c082", "c7655582a8e14698"},
                             LargeCase{2900, 2, 3019, 3019, false, "7bb3d65cf75e6e3e",
                                       "a010c75d9b47fa29", "08cf4e9c2353c3c7"},
                             LargeCase{3500, 3, 3019, 4529, true, "77b6a74c37f80a62",
                                       "c12e876254e1756f", "aeb4b88e09759bce"}}) {
    const GptOrder order(
        all, {.range = {true, 0, 969}, .sequence = 128, .requested = c.requested, .seed = 1234});
    EXPECT_EQ(order.tokens_per_epoch(), 193267);
    EXPECT_EQ(order.plan().epochs, c.epochs);
    EXPECT_EQ(order.plan().last_epoch_apart, c.apart);
    EXPECT_EQ(order.plan().samples_before_last, c.before_last);
    EXPECT_EQ(order.samples(), c.samples);
    std::vector<int32_t> places;
    for (const auto& [position, offset] : places_of(order)) {
      places.push_back(static_cast<int32_t>(position));
      places.push_back(static_cast<int32_t>(offset));
    }
    const std::vector<int64_t> numbers = shuffle_of(order);
    EXPECT_EQ(digest(documents_of(order)), c.documents) << c.requested;
    EXPECT_EQ(digest(places), c.places) << c.requested;
    EXPECT_EQ(digest(std::vector<uint32_t>(numbers.begin(), numbers.end())), c.shuffle);
  }
}

TEST(GptOrder, SamplesLieEndToEndAndShareOneToken) {
  const NumberedStore store({0, 1, 4, 0, 0, 9, 2, 0});
  const GptOrder order = order_of(store.sequences(), 7, 3);
  std::vector<int32_t> row;
  for (int32_t document : order.document_index())
    for (int32_t i = 0; i < store.sequences()[document]; ++i) row.push_back(100 * document + i);
  std::vector<int32_t> tokens(4);
  for (int64_t index = 0; index < order.samples(); ++index) {
    order.read(store, index, tokens);
    const int64_t start = 3 * order.shuffled(index);
    EXPECT_EQ(tokens, std::vector<int32_t>(row.begin() + start, row.begin() + start + 4));
  }
}

// BR-28: exactly 10 samples an epoch (31 tokens, T = 3: one sequence of one token, ten of three).
TEST(GptOrder, CrossingAnEpochFollowsTheDocumentedRule) {
  std::vector<int32_t> lengths(10, 3);
  lengths.push_back(1);
  const SequenceLengths all(lengths);
  const std::map<int64_t, std::pair<int64_t, bool>> expected{
      {9, {1, false}}, {10, {1, false}}, {11, {2, true}}, {20, {2, false}}, {25, {3, true}}};
  for (const auto& [requested, rule] : expected) {
    const GptOrder order = order_of(all, requested, 3);
    EXPECT_EQ(order.plan().epochs, rule.first) << requested;
    EXPECT_EQ(order.plan().last_epoch_apart, rule.second) << requested;
    EXPECT_GE(order.samples(), requested);
    std::map<int32_t, int64_t> times;
    for (int32_t document : order.document_index()) ++times[document];
    for (const auto& [document, count] : times) EXPECT_EQ(count, rule.first) << document;
    const std::vector<int64_t> numbers = shuffle_of(order);
    const std::set<int64_t> distinct(numbers.begin(), numbers.end());
    EXPECT_EQ(distinct.size(), numbers.size());
    EXPECT_EQ(*distinct.rbegin(), order.samples() - 1);
    // Kept apart, the last epoch's samples all come after the others.
    for (int64_t k = 0; k < order.plan().samples_before_last; ++k)
      EXPECT_LT(numbers[static_cast<size_t>(k)], order.plan().samples_before_last);
    EXPECT_EQ(shuffle_of(order_of(all, requested, 3)), numbers);
  }
}

TEST(GptOrder, OneEpochRepeatsNothing) {
  const SequenceLengths lengths(kLengths);
  const GptOrder order = order_of(lengths, kOneEpoch);
  EXPECT_EQ(order.plan().epochs, 1);
  EXPECT_EQ(order.samples(), 6);
}

TEST(GptOrder, SequencesShorterThanASampleAreRepeated) {
  const NumberedStore store({2, 1});
  const GptOrder order = order_of(store.sequences(), 5, 8);
  EXPECT_EQ(order.plan().epochs, 14);  // 14 * 3 >= 5 * 8 + 1
  EXPECT_EQ(order.samples(), 5);
  std::vector<int32_t> tokens(9);
  for (int64_t i = 0; i < 5; ++i) order.read(store, i, tokens);
}

// BR-25: counts past 2^31 and 2^32, in arithmetic only.
TEST(GptOrderPlan, CountsAre64Bit) {
  const int64_t tokens = 3'600'000'000;
  EXPECT_EQ(plan_gpt_order(tokens, 8192, kOneEpoch).samples, (tokens - 1) / 8192);
  const int64_t requested = 5'000'000'000;
  const GptOrderPlan plan = plan_gpt_order(tokens, 8192, requested);
  EXPECT_EQ(plan.epochs, 11378);  // ceil((5e9 * 8192 + 1) / 3.6e9)
  EXPECT_EQ(plan.samples, (11378 * tokens - 1) / 8192);
  EXPECT_GE(plan.samples, requested);
  expect_error(ExitCode::bad_data, {"64 bits"},
               [&] { plan_gpt_order(tokens, 8192, INT64_MAX / 100); });
}

}  // namespace
}  // namespace trireme
