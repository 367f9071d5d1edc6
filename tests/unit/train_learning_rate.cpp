// The learning rate against Megatron-LM's values, and the edges of schedules.
#include "trireme/train/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "trireme/config/deck.hpp"

namespace trireme {
namespace {

using Kind = ScheduleSettings::Kind;
using WsdKind = ScheduleSettings::WsdKind;

constexpr int64_t kBatch = 8;

LearningRate megatron(Kind kind, WsdKind wsd_kind = WsdKind::exponential) {
  return {.kind = kind,
          .wsd_kind = wsd_kind,
          .initial = 0,
          .maximum = 3e-4,
          .minimum = 3e-5,
          .warmup = 10 * kBatch,
          .decay = 100 * kBatch,
          .wsd_decay = 20 * kBatch};
}

void expect_rate(const LearningRate& schedule, int64_t step, double expected) {
  EXPECT_NEAR(learning_rate_at(schedule, step * kBatch), expected, 1e-9 * expected)
      << "step " << step;
}

// Maximum 3e-4, minimum 3e-5, warm-up 10, end 100, batch 8; computed with Megatron-LM.
TEST(LearningRate, GoldenValues) {
  const std::vector<int64_t> steps = {0, 1, 5, 10, 11, 55, 100, 101};
  const std::map<Kind, std::vector<double>> rates = {
      {Kind::linear, {0, 3e-5, 1.5e-4, 3e-4, 2.97e-4, 1.65e-4, 3e-5, 3e-5}},
      {Kind::cosine, {0, 3e-5, 1.5e-4, 3e-4, 2.999177616e-4, 1.65e-4, 3e-5, 3e-5}},
      {Kind::inverse_square_root,
       {0, 3e-5, 1.5e-4, 3e-4, 2.860387768e-4, 1.279204298e-4, 9.486832981e-5, 3e-5}},
      {Kind::constant, {0, 3e-5, 1.5e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4}},
  };
  for (const auto& [kind, values] : rates)
    for (size_t i = 0; i < steps.size(); ++i) expect_rate(megatron(kind), steps[i], values[i]);
}

TEST(LearningRate, GoldenWsd) {
  const std::map<WsdKind, std::vector<double>> rates = {
      {WsdKind::linear, {2.865e-4, 1.65e-4}},
      {WsdKind::cosine, {2.983379260e-4, 1.65e-4}},
      {WsdKind::exponential, {2.816056176e-4, 1.418376618e-4}},
      {WsdKind::minus_sqrt, {2.396261646e-4, 1.090811691e-4}},
  };
  for (const auto& [kind, values] : rates) {
    const LearningRate schedule = megatron(Kind::wsd, kind);
    expect_rate(schedule, 10, 3e-4);
    expect_rate(schedule, 80, 3e-4);
    expect_rate(schedule, 81, values[0]);
    expect_rate(schedule, 90, values[1]);
    expect_rate(schedule, 100, 3e-5);
    expect_rate(schedule, 101, 3e-5);
  }
}

TEST(LearningRate, WarmUpStartsAtInitial) {
  LearningRate schedule = megatron(Kind::cosine);
  schedule.initial = 1e-5;
  expect_rate(schedule, 0, 1e-5);
  expect_rate(schedule, 5, 1.55e-4);
  expect_rate(schedule, 10, 3e-4);
}

// Peak 1e-3, floor 1e-4, 10 cosine steps, no warm-up. A curve clamped at the floor would
// show 5.0e-4 at step 5 and 1e-4 at step 8.
TEST(LearningRate, FloorStretchesTheCosine) {
  const LearningRate schedule{
      .kind = Kind::cosine, .maximum = 1e-3, .minimum = 1e-4, .decay = 10 * kBatch};
  expect_rate(schedule, 0, 1e-3);
  expect_rate(schedule, 5, 5.5e-4);
  EXPECT_NEAR(learning_rate_at(schedule, 8 * kBatch), 1.859e-4, 5e-8);
  for (int64_t step = 10; step < 15; ++step) expect_rate(schedule, step, 1e-4);
}

// Finite; above zero except at the first step of a warm-up; rising only in the warm-up; never below
// the floor after it; constant after the end. Pairs that a deck refuses do no harm here either.
TEST(LearningRate, EdgesOfEverySchedule) {
  const std::vector<std::pair<int64_t, int64_t>> pairs = {{0, 10},  {1, 10}, {10, 10},
                                                          {12, 10}, {0, 1},  {0, 0}};
  for (const Kind kind :
       {Kind::constant, Kind::linear, Kind::cosine, Kind::wsd, Kind::inverse_square_root})
    for (const auto& [warmup, end] : pairs) {
      const LearningRate schedule{.kind = kind,
                                  .maximum = 1e-3,
                                  .minimum = 1e-4,
                                  .warmup = warmup * kBatch,
                                  .decay = end * kBatch,
                                  .wsd_decay = end > 0 ? kBatch : 0};
      double before = 1e-3;
      for (int64_t step = 0; step <= 14; ++step) {
        const double rate = learning_rate_at(schedule, step * kBatch);
        ASSERT_TRUE(std::isfinite(rate));
        if (step == 0 && warmup == 0) {
          EXPECT_EQ(rate, 1e-3);
        }
        if (step >= warmup) {
          EXPECT_GE(rate, 1e-4);
          if (step > warmup) {
            EXPECT_LE(rate, before);
          }
        } else {
          EXPECT_DOUBLE_EQ(rate, 1e-3 * static_cast<double>(step) / static_cast<double>(warmup));
        }
        if (step > end + 1 && step > warmup + 1) {
          EXPECT_EQ(rate, before);
        }
        before = rate;
      }
    }
}

const char* const kDeck =
    "[run]\nsteps = 10\n[model]\nfamily = gpt2\nlayers = 2\nhidden = 24\nheads = 3\nvocab = 61\n"
    "[batch]\nsequence = 8\nglobal = 6\n[schedule]\nwarmup = 2\nminimum = 1e-5\n";

std::vector<double> rates_of(const std::vector<std::string>& overrides, int64_t first,
                             int64_t last) {
  const Deck deck = parse_deck(kDeck, "a.ini", overrides);
  const LearningRate schedule = learning_rate_of(deck.settings);
  std::vector<double> rates;
  for (int64_t step = first; step < last; ++step)
    rates.push_back(learning_rate_at(schedule, step * deck.settings.batch.global));
  return rates;
}

TEST(LearningRate, DeckCountsStepsOfTheFinalBatch) {
  const LearningRate schedule = learning_rate_of(parse_deck(kDeck, "a.ini", {}).settings);
  EXPECT_EQ(schedule.warmup, 12);
  EXPECT_EQ(schedule.decay, 60);
  EXPECT_EQ(schedule.maximum, 3e-4);
  EXPECT_EQ(schedule.minimum, 1e-5);
  // Another batch, lengths in steps: the same rates for the same steps.
  EXPECT_EQ(rates_of({"--batch.global=12"}, 0, 12), rates_of({}, 0, 12));
}

// A resumed run asks for the rate at its own samples: nothing is remembered, nothing advances
// twice.
TEST(LearningRate, ResumeGivesTheStraightRunsRates) {
  const std::vector<double> straight = rates_of({}, 0, 10);
  const std::vector<double> resumed = rates_of({}, 5, 10);
  EXPECT_TRUE(std::equal(resumed.begin(), resumed.end(), straight.begin() + 5));
  const std::vector<std::string> changed = {"--optimizer.learning_rate=1e-3",
                                            "--schedule.minimum=1e-4"};
  const std::vector<double> overridden = rates_of(changed, 5, 11);
  EXPECT_EQ(overridden.back(), 1e-4);
  EXPECT_NEAR(overridden[1], 1e-4 + 9e-4 * 0.5 * (1 + std::cos(M_PI * 0.5)), 1e-15);

  Deck longer = parse_deck(kDeck, "a.ini", std::vector<std::string>{"--run.steps=20"});
  keep_decay(longer, to_deck_text(parse_deck(kDeck, "a.ini", {}).settings));
  const LearningRate kept = learning_rate_of(longer.settings);
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_EQ(learning_rate_at(kept, step * 6), straight[static_cast<size_t>(step)]);
  EXPECT_EQ(learning_rate_at(kept, 19 * 6), 1e-5);
}

// The text in a checkpoint reads back to the same rates, and says what differs.
TEST(LearningRate, AsTextAndBack) {
  for (const auto& [words, lines] : std::vector<std::pair<std::vector<std::string>, int>>{
           {{}, 6},
           {{"--schedule.kind=constant", "--schedule.warmup=0"}, 2},
           {{"--schedule.kind=wsd", "--schedule.wsd_decay=3", "--schedule.wsd_kind=minus_sqrt"}, 8},
           {{"--schedule.kind=inverse_square_root", "--optimizer.learning_rate=0.1"}, 6}}) {
    const LearningRate rate = learning_rate_of(parse_deck(kDeck, "a.ini", words).settings);
    const std::string text = schedule_text(rate);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), lines) << text;
    const auto back = parse_schedule(text);
    ASSERT_TRUE(back.has_value()) << text;
    for (int64_t samples = 0; samples < 100; ++samples)
      EXPECT_EQ(learning_rate_at(*back, samples), learning_rate_at(rate, samples)) << text;
    EXPECT_TRUE(schedule_differences(text, text).empty());
  }
  for (const char* bad : {"", "kind = round\n", "maximum = 1\n", "kind = linear\nmaximum = x\n",
                          "kind = linear\nmaximum = 1\ndecay = -5\nminimum = 0\n",
                          "kind = constant\nmaximum = 1\nmaximum = 2\n"})
    EXPECT_FALSE(parse_schedule(bad).has_value()) << bad;
  const auto differ = schedule_differences("kind = constant\nmaximum = 1\n",
                                           "kind = linear\nmaximum = 1\ndecay = 5\nminimum = 0\n");
  ASSERT_EQ(differ.size(), 3u);
  EXPECT_EQ(differ[0], "decay: none in the checkpoint, 5 in the deck (sequences)");
}

}  // namespace
}  // namespace trireme
