// Rules between settings: each broken one names sizes and remedy, and all are reported together.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"

namespace trireme {
namespace {

const char* const kDeck =
    "[run]\nsteps = 20\n"
    "[model]\nfamily = gpt2\nlayers = 5\nhidden = 24\nheads = 6\nvocab = 61\n"
    "[batch]\nsequence = 32\nglobal = 12\nmicro = 1\n";

std::string error_of(const std::vector<std::string>& overrides, int ranks = 0) {
  try {
    parse_deck(kDeck, "a.ini", overrides, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_config);
    return error.what();
  }
  return "";
}

void expect_refused(const std::vector<std::string>& overrides, int ranks, const std::string& part) {
  const std::string error = error_of(overrides, ranks);
  EXPECT_NE(error.find(part), std::string::npos) << "missing: " << part << "\nin: " << error;
}

TEST(Rules, SizesThatDoNotDivideAreRefusedWithTheirNumbers) {
  EXPECT_EQ(error_of({"--grid.pp=2"}, 2), "");  // uneven layers are fine
  expect_refused({"--grid.tp=4"}, 4, "command line (--grid.tp=4): ");
  expect_refused({"--grid.virtual_stages=6", "--grid.pp=2"}, 2, "command line (--grid.pp=2): ");
  expect_refused({"--batch.micro=5"}, 0, "a.ini:11: ");
  expect_refused({"--grid.tp=4"}, 4, "grid.tp 4 does not divide model.heads 6");
  expect_refused({"--model.ffn=171", "--grid.tp=2"}, 2, "grid.tp 2 does not divide model.ffn 171");
  expect_refused({"--model.hidden=30", "--model.heads=4"}, 1,
                 "model.hidden 30 is not a multiple of model.heads 4");
  expect_refused({"--grid.pp=8"}, 8,
                 "grid.pp 8 x grid.virtual_stages 1 = 8 stages is more than model.layers 5");
  expect_refused({"--grid.pp=2", "--grid.virtual_stages=3"}, 2,
                 "= 6 stages is more than model.layers 5");
  expect_refused({"--grid.virtual_stages=2"}, 1, "needs grid.pp above 1");
  expect_refused({"--model.kv_heads=4"}, 1, "model.kv_heads 4 does not divide model.heads 6");
  expect_refused({"--model.kv_heads=2", "--grid.tp=3"}, 3, "grid.tp 3 and model.kv_heads 2");
  expect_refused({"--grid.tp=2", "--grid.sequence_parallel=true", "--batch.sequence=33"}, 2,
                 "batch.micro 1 x batch.sequence 33 = 33 tokens is not a multiple of grid.tp 2");
  expect_refused({"--model.vocab=5", "--grid.tp=6"}, 6, "leaves a rank without a row");
  expect_refused({"--grid.cp=2"}, 2, "context parallelism");
}

TEST(Rules, KvHeadsMayBeFewerThanTp) {
  EXPECT_EQ(error_of({"--model.kv_heads=2", "--grid.tp=6"}, 6), "");
  EXPECT_EQ(error_of({"--model.kv_heads=3", "--grid.tp=3"}, 3), "");
}

TEST(Rules, RanksEquationIsPrintedWithLayoutsThatFit) {
  const std::string error = error_of({"--grid.tp=3", "--grid.pp=2"}, 4);
  for (const char* part : {"grid.tp 3 x cp 1 x pp 2 = 6 does not divide the number of ranks, 4",
                           "nearest layouts of 4 ranks that fit: tp 2 x cp 1 x dp 1 x pp 2"})
    EXPECT_NE(error.find(part), std::string::npos) << error;
  expect_refused({"--grid.tp=2", "--grid.dp=3"}, 4,
                 "tp 2 x cp 1 x pp 1 x dp 3 = 6 is not the number of ranks, 4");
  expect_refused({"--grid.tp=4"}, 4,
                 "nearest layouts of 4 ranks that fit: tp 2 x cp 1 x dp 2 x pp 1");
  expect_refused({}, 13, "no layout of 13 ranks fits");
}

TEST(Rules, BatchIsSharedByRanks) {
  expect_refused({"--batch.micro=5"}, 0, "batch.global 12 is not a multiple of batch.micro 5");
  expect_refused({"--batch.micro=3"}, 8,
                 "batch.global 12 is not a multiple of batch.micro 3 x dp 8 = 24");
  EXPECT_EQ(error_of({"--batch.micro=3"}, 4), "");
  const std::vector<std::string> ramp = {"--batch.ramp_start=4", "--batch.ramp_increment=2",
                                         "--batch.ramp_samples=100"};
  EXPECT_EQ(error_of(ramp, 2), "");
  expect_refused(ramp, 4, "batch.ramp_increment 2 is not a multiple of batch.micro 1 x dp 4 = 4");
  expect_refused({"--batch.ramp_start=4", "--batch.ramp_increment=3", "--batch.ramp_samples=9"}, 0,
                 "must divide the difference 8");
  expect_refused({"--batch.ramp_start=16"}, 0, "the batch only grows");
  expect_refused({"--batch.ramp_start=4", "--batch.ramp_increment=4"}, 0,
                 "batch.ramp_samples is missing");
  expect_refused({"--batch.ramp_increment=4"}, 0, "need batch.ramp_start");
}

TEST(Rules, SchedulesMakeSense) {
  for (const char* kind : {"linear", "cosine", "wsd"}) {
    const std::string which = std::string("--schedule.kind=") + kind;
    for (const char* warmup : {"--schedule.warmup=10", "--schedule.warmup=12"})
      expect_refused({which, warmup, "--schedule.decay=10", "--schedule.wsd_decay=1"}, 0,
                     "is not below schedule.decay 10");
    EXPECT_EQ(error_of({which, "--schedule.decay=1", "--schedule.wsd_decay=1"}), "");
    EXPECT_EQ(
        error_of({which, "--schedule.warmup=1", "--schedule.decay=10", "--schedule.wsd_decay=9"}),
        "");
  }
  const std::string root = "--schedule.kind=inverse_square_root";
  EXPECT_EQ(error_of({root, "--schedule.warmup=10", "--schedule.decay=10"}), "");
  expect_refused({root, "--schedule.warmup=12", "--schedule.decay=10"}, 0, "is not below");
  EXPECT_EQ(error_of({"--schedule.kind=constant", "--schedule.warmup=30"}), "");
  expect_refused({"--schedule.kind=wsd"}, 0, "schedule.wsd_decay 0 must be 1 to 20");
  expect_refused({"--schedule.kind=wsd", "--schedule.warmup=5", "--schedule.wsd_decay=16"}, 0,
                 "must be 1 to 15");
  expect_refused({"--schedule.minimum=1"}, 0, "schedule.minimum 1 is above");
  expect_refused({"--schedule.initial=1"}, 0, "schedule.initial 1 is above");
}

TEST(Rules, ModelAndData) {
  expect_refused({"--model.family=llama"}, 0, "model.ffn is missing");
  expect_refused({"--model.family=llama", "--model.ffn=8", "--model.head_size=3"}, 0, "is odd");
  expect_refused({"--model.positions=16"}, 0,
                 "model.positions 16 is shorter than batch.sequence 32");
  expect_refused({"--model.recompute_layers=2"}, 0, "needs model.recompute = full");
  expect_refused({"--data.kind=indexed"}, 0, "data.path is missing");
  expect_refused({"--data.split=0,1"}, 0, "data.split `0,1` leaves nothing to train on");
  expect_refused({"--data.split=1,x"}, 0, "data.split");
  expect_refused({"--data.eod=61"}, 0, "data.eod 61 is not below model.vocab 61");
  expect_refused({"--data.eod_mask_loss=true"}, 0, "needs data.eod");
  expect_refused({"--run.seed=4294967296"}, 0, "is not below 2^32");
  EXPECT_EQ(error_of({"--run.seed=4294967296", "--data.order=random"}), "");
  expect_refused({"--run.steps=1000000000000", "--batch.global=1000000000"}, 0,
                 "do not fit in 64 bits");
}

TEST(Rules, AllAreReportedTogether) {
  const std::string error = error_of({"--grid.tp=5", "--grid.pp=6", "--batch.micro=5",
                                      "--data.kind=indexed", "--schedule.warmup=50"},
                                     7);
  EXPECT_NE(error.find("a.ini: 7 errors"), std::string::npos) << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 7) << error;
}

TEST(Layout, GridTakesWhatIsLeft) {
  const Deck deck =
      parse_deck(kDeck, "a.ini", std::vector<std::string>{"--grid.tp=2", "--grid.pp=2"});
  EXPECT_EQ(grid_shape(deck.settings, 12), (GridShape{.tp = 2, .cp = 1, .dp = 3, .pp = 2}));
  EXPECT_THROW(grid_shape(deck.settings, 6), Error);
  for (const GridShape& shape : fitting_grids(deck.settings, 12)) {
    EXPECT_EQ(shape.ranks(), 12);
    EXPECT_EQ(6 % shape.tp, 0);
    EXPECT_LE(shape.pp, 5);
    EXPECT_EQ(12 % shape.dp, 0);
  }
}

TEST(Layout, SequenceParallelIsSwitchedOffAtTpOne) {
  const Deck deck =
      parse_deck(kDeck, "a.ini", std::vector<std::string>{"--grid.sequence_parallel=true"});
  EXPECT_FALSE(deck.settings.grid.sequence_parallel);
  ASSERT_EQ(deck.notes.size(), 1u);
  EXPECT_NE(deck.notes[0].find("switched off"), std::string::npos);
}

TEST(Layout, OverlapOverTpIsSwitchedOffWithoutSequenceParallel) {
  using Overlap = GridSettings::Overlap;
  const auto overlap_of = [](std::vector<std::string> words, size_t notes) {
    const Deck deck = parse_deck(kDeck, "a.ini", words);
    EXPECT_EQ(deck.notes.size(), notes);
    return deck.settings.grid.tp_overlap;
  };
  EXPECT_EQ(overlap_of({}, 0), Overlap::automatic);
  EXPECT_EQ(overlap_of({"--grid.tp=2", "--grid.tp_overlap=on"}, 1), Overlap::off);
  EXPECT_EQ(overlap_of({"--grid.sequence_parallel=true", "--grid.tp_overlap=on"}, 2), Overlap::off);
  EXPECT_EQ(overlap_of({"--grid.tp=2", "--grid.sequence_parallel=true", "--grid.tp_overlap=on"}, 0),
            Overlap::on);
}

TEST(Layout, RampGivesTheLengthOfTheSchedule) {
  const Deck deck =
      parse_deck(kDeck, "a.ini",
                 std::vector<std::string>{"--batch.ramp_start=4", "--batch.ramp_increment=4",
                                          "--batch.ramp_samples=24"});
  // 3 steps of 4 (0, 4, 8), 2 of 8 (12, 20), then 15 of 12 from 28: 208 sequences in 20 steps.
  EXPECT_EQ(consumed_before(batch_ramp(deck.settings), 20), 208);
  EXPECT_EQ(deck.settings.schedule.decay, 18);  // 208 / 12, rounded up
}

// The ramp `16 16 1000` to 64: 21 steps of 16, 11 of 32, 7 of 48, then 64 from 1024 consumed.
TEST(BatchRamp, GoldenSteps) {
  const BatchRamp ramp{.final = 64, .start = 16, .increment = 16, .samples = 1000};
  int64_t consumed = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const int64_t size = step < 21 ? 16 : step < 32 ? 32 : step < 39 ? 48 : 64;
    ASSERT_EQ(batch_size_at(ramp, consumed), size) << step;
    ASSERT_EQ(consumed_before(ramp, step), consumed) << step;
    EXPECT_EQ(micro_batches_at(ramp, consumed, 2, 4), size / 8);
    EXPECT_EQ(step == 39, consumed == 1024) << step;
    consumed += size;
  }
}

TEST(BatchRamp, WalksOfOtherRampsAgree) {
  for (const BatchRamp& ramp : {BatchRamp{.final = 30, .start = 3, .increment = 3, .samples = 1},
                                BatchRamp{.final = 30, .start = 3, .increment = 1, .samples = 777},
                                BatchRamp{.final = 30, .start = 30, .increment = 3, .samples = 100},
                                BatchRamp{.final = 7}}) {
    int64_t consumed = 0;
    for (int64_t step = 0; step < 300; ++step) {
      ASSERT_EQ(consumed_before(ramp, step), consumed) << step;
      consumed += batch_size_at(ramp, consumed);
    }
  }
  const BatchRamp large{.final = 1536, .start = 16, .increment = 16, .samples = 5859375};
  EXPECT_EQ(consumed_before(large, int64_t{1} << 62), INT64_MAX);
}

}  // namespace
}  // namespace trireme
