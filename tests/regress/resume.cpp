// A run that was stopped and resumed is the run that was not stopped: bit for bit on the same
// layout, up to rounding on another. Finished, longer, shorter and changed runs do what the deck
// says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/run_files.hpp"
#include "support/run_program.hpp"
#include "trireme/train/learning_rate.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

class Resume : public ::testing::Test {
 protected:
  Resume() : folder_("resume") {}

  ProgramResult train(const std::string& name, int ranks, Lines lines) {
    lines.push_back("run.directory=" + (folder_ / name).string());
    const ProgramResult result = run_trireme(ranks, small_run(folder_.path(), lines));
    EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.output;
    return result;
  }
  std::string checkpoint(const std::string& name, int64_t step) const {
    return file_bytes(checkpoint_path(folder_ / name, step));
  }
  void expect_same_end(const std::string& have, const std::string& want, int64_t step) const {
    ASSERT_GT(checkpoint(want, step).size(), 1000u);
    EXPECT_TRUE(checkpoint(have, step) == checkpoint(want, step)) << have;
    EXPECT_EQ(read_metrics(folder_ / have), read_metrics(folder_ / want)) << have;
    EXPECT_EQ(read_validation(folder_ / have), read_validation(folder_ / want)) << have;
  }
  // One straight run that saves every step, and one resumed from each of `stops`.
  void bit_equal(int ranks, Lines lines, const std::vector<int64_t>& stops, int64_t steps) {
    lines.push_back(fmt::format("run.steps={}", steps));
    lines.push_back("checkpoint.every=1");
    train("straight", ranks, lines);
    ASSERT_EQ(read_metrics(folder_ / "straight").size(), static_cast<size_t>(steps));
    lines.back() = "checkpoint.every=0";
    for (int64_t stop : stops) {
      SCOPED_TRACE(fmt::format("stopped after step {} of {}", stop, steps));
      copy_run_at(folder_ / "straight", folder_ / "resumed", stop);
      const ProgramResult result = train("resumed", ranks, lines);
      EXPECT_NE(result.output.find("resumed from"), std::string::npos) << result.output;
      expect_same_end("resumed", "straight", steps);
    }
  }

  ScratchFolder folder_;
};

// Warm-up of two steps: the first stop lies in it. Four micro-batches a step, masks of dropout,
// moments split over dp, tied table on both stages.
TEST_F(Resume, BitEqualAcrossPipelineAndReplicas) {
  bit_equal(4, {"grid.pp=2", "grid.dp=2", "batch.micro=1", "run.evaluate_every=3"}, {1, 4, 6}, 7);
}
TEST_F(Resume, BitEqualUnderTensorParallelAndRecomputation) {
  bit_equal(2,
            {"grid.tp=2", "grid.sequence_parallel=true", "model.recompute=full", "optimizer.zero=0",
             "model.family=llama", "model.kv_heads=2", "model.bias=false"},
            {3}, 5);
}
TEST_F(Resume, BitEqualInBf16) {
  bit_equal(2, {"grid.dp=2", "precision.compute=bf16"}, {2}, 5);
}

// 20 samples a pass over the data and 4 a step: stops before, at and behind the border of epochs.
TEST_F(Resume, BitEqualOverEpochs) {
  write_dataset(folder_ / "few", 61, 6);
  const Lines lines = {"data.path=" + (folder_ / "few").string(), "data.split=1", "batch.global=4"};
  bit_equal(1, lines, {4, 5, 6, 10, 19}, 20);
  const std::string output = train("twice", 1, lines).output;
  EXPECT_NE(output.find("epoch(s)"), std::string::npos) << output;
}

TEST_F(Resume, AnotherLayoutGoesOnUpToRounding) {
  const Lines steps = {"run.steps=6", "checkpoint.every=3"};
  auto with = [&](Lines lines) {
    lines.insert(lines.end(), steps.begin(), steps.end());
    return lines;
  };
  train("straight", 4, with({"grid.tp=2", "grid.pp=2"}));
  const auto want = read_tensors(checkpoint_path(folder_ / "straight", 6), "weights/");
  const std::vector<MetricsLine> metrics = read_metrics(folder_ / "straight");
  struct Other {
    int ranks;
    Lines lines;
  };
  for (const Other& other : {Other{4, {"grid.dp=4"}}, Other{1, {}}}) {
    copy_run_at(folder_ / "straight", folder_ / "other", 3);
    train("other", other.ranks, with(other.lines));
    const std::vector<MetricsLine> have = read_metrics(folder_ / "other");
    ASSERT_EQ(have.size(), 6u);
    double loss = 0, weight = 0;
    for (size_t i = 0; i < 6; ++i)
      loss = std::max(loss, std::fabs(have[i].loss / metrics[i].loss - 1));
    const auto weights = read_tensors(checkpoint_path(folder_ / "other", 6), "weights/");
    ASSERT_EQ(weights.size(), want.size());
    for (const auto& [name, values] : want) {
      // A key bias starts at 0 and has a gradient of rounding only: measured absolutely.
      const double d = distance(weights.at(name), values, name.ends_with("key.bias") ? 1 : 0);
      EXPECT_LE(d, 1e-4) << name;
      weight = std::max(weight, d);
    }
    fmt::print("stopped at 2x2x1, resumed on {} ranks: losses within {:.1e}, weights {:.1e}\n",
               other.ranks, loss, weight);
    EXPECT_LE(loss, 1e-4);
    EXPECT_LE(weight, 1e-4);
  }
}

TEST_F(Resume, FinishedShorterAndLongerRuns) {
  const Lines usual = {"checkpoint.every=4", "run.evaluate_every=4"};
  auto with_steps = [&](int steps) {
    Lines lines = usual;
    lines.push_back(fmt::format("run.steps={}", steps));
    return lines;
  };
  train("run", 2, with_steps(10));
  const auto done = snapshot(folder_ / "run");
  for (int64_t step : {4, 8, 10})
    EXPECT_TRUE(std::filesystem::exists(checkpoint_path(folder_ / "run", step))) << step;

  const ProgramResult again = train("run", 2, with_steps(10));
  EXPECT_NE(again.output.find("nothing to do: step 10 of 10 is done"), std::string::npos);
  EXPECT_TRUE(snapshot(folder_ / "run") == done);
  const ProgramResult lowered = train("run", 2, with_steps(8));
  EXPECT_NE(lowered.output.find("nothing to do: step 10 of 8 is done"), std::string::npos);
  EXPECT_TRUE(snapshot(folder_ / "run") == done);
  EXPECT_LT(std::max(again.seconds, lowered.seconds), 10);

  const ProgramResult raised = train("run", 2, with_steps(12));
  EXPECT_NE(raised.output.find("schedule.decay stays 10 steps"), std::string::npos)
      << raised.output;
  const std::vector<MetricsLine> metrics = read_metrics(folder_ / "run");
  ASSERT_EQ(metrics.size(), 12u);
  EXPECT_DOUBLE_EQ(metrics[11].learning_rate, 1e-4);  // the floor: no jump back up
  EXPECT_TRUE(snapshot(folder_ / "run").at("checkpoints/step_000000010.h5") ==
              done.at("checkpoints/step_000000010.h5"));
  EXPECT_TRUE(std::filesystem::exists(checkpoint_path(folder_ / "run", 12)));
}

// Rates are a function of the deck and of consumed samples: after a change all of the new settings
// count and none of the old.
TEST_F(Resume, ChangedSchedulesAndBatches) {
  train("straight", 1, {"run.steps=10", "checkpoint.every=5"});
  struct Change {
    Lines lines;
    LearningRate schedule;
    int64_t batch;
  };
  const std::vector<Change> changes = {
      {{"optimizer.learning_rate=5e-4", "schedule.minimum=3e-4", "schedule.resume=replace"},
       {.maximum = 5e-4, .minimum = 3e-4, .warmup = 16, .decay = 80},
       8},
      {{"schedule.decay=20", "run.steps=20", "schedule.resume=replace"},
       {.maximum = 2e-3, .minimum = 1e-4, .warmup = 16, .decay = 160},
       8},
      {{"optimizer.learning_rate=5e-4", "schedule.kind=linear", "schedule.resume=keep"},
       {.maximum = 2e-3, .minimum = 1e-4, .warmup = 16, .decay = 80},
       8},
      // The same in sequences: no other schedule.
      {{"batch.global=4", "schedule.decay=20", "schedule.warmup=4"},
       {.maximum = 2e-3, .minimum = 1e-4, .warmup = 16, .decay = 80},
       4}};
  for (const Change& change : changes) {
    SCOPED_TRACE(change.lines.front());
    copy_run_at(folder_ / "straight", folder_ / "changed", 5);
    Lines lines = {"run.steps=10"};
    lines.insert(lines.end(), change.lines.begin(), change.lines.end());
    train("changed", 1, lines);
    const std::vector<MetricsLine> metrics = read_metrics(folder_ / "changed");
    ASSERT_GE(metrics.size(), 10u);
    for (size_t i = 5; i < metrics.size(); ++i) {
      const int64_t samples = 40 + static_cast<int64_t>(i - 5) * change.batch;
      EXPECT_DOUBLE_EQ(metrics[i].learning_rate, learning_rate_at(change.schedule, samples)) << i;
      EXPECT_EQ(metrics[i].consumed_samples, samples + change.batch);
    }
  }
}

// Another schedule by accident is refused before anything is touched, with both ways out.
TEST_F(Resume, AnotherScheduleNeedsTheDecksWord) {
  train("run", 1, {"run.steps=4", "checkpoint.every=4"});
  const auto before = snapshot(folder_ / "run");
  const std::vector<std::pair<Lines, Lines>> cases = {
      {{"optimizer.learning_rate=5e-4"}, {"maximum: 0.002 in the checkpoint, 0.0005 in the deck"}},
      {{"schedule.kind=linear"}, {"kind: cosine in the checkpoint, linear in the deck"}},
      {{"schedule.decay=9", "schedule.minimum=0"},
       {"decay: 32 in the checkpoint, 72 in the deck (sequences)",
        "minimum: 0.0001 in the checkpoint, 0 in the deck"}},
      {{"batch.global=4"}, {"warmup: 16 in the checkpoint, 8 in the deck (sequences)"}}};
  for (const auto& [lines, texts] : cases) {
    Lines all = lines;
    all.insert(all.end(), {"run.steps=6", "run.directory=" + (folder_ / "run").string()});
    const ProgramResult result = run_trireme(1, small_run(folder_.path(), all));
    EXPECT_EQ(result.exit_code, 78) << result.output;
    for (const std::string& text : texts)
      EXPECT_NE(result.output.find(text), std::string::npos) << text << "\n" << result.output;
    EXPECT_NE(result.output.find("schedule.resume = keep"), std::string::npos) << result.output;
    EXPECT_TRUE(snapshot(folder_ / "run") == before);
  }
}

// At learning rate 0 the weights must stay those that were loaded, on every layout and in bf16: a
// jump of the loss would be stale master weights.
TEST_F(Resume, LoadedWeightsAreNotUndone) {
  struct Case {
    int ranks;
    std::string compute;
    Lines lines;
  };
  for (const std::string compute : {"f32", "bf16"}) {
    const Lines common = {"precision.compute=" + compute, "model.dropout=0", "run.evaluate_every=1",
                          "run.evaluate_batches=2"};
    Lines first = common;
    first.insert(first.end(), {"run.steps=30", "optimizer.learning_rate=1e-2"});
    train(compute, 1, first);
    const double trained = read_validation(folder_ / compute).at(30);
    ASSERT_LT(trained, std::log(61.0) - 0.3);
    for (const auto& [ranks, words] :
         std::vector<std::pair<int, std::string>>{{1, ""}, {2, "grid.dp=2"}, {2, "grid.tp=2"}}) {
      Lines lines = common;
      lines.insert(lines.end(),
                   {"run.steps=3", "optimizer.learning_rate=0", "schedule.minimum=0",
                    "checkpoint.load_optimizer=false",
                    "checkpoint.load=" + checkpoint_path(folder_ / compute, 30).string()});
      if (!words.empty()) lines.push_back(words);
      std::filesystem::remove_all(folder_ / "loaded");
      train("loaded", ranks, lines);
      for (const auto& [step, loss] : read_validation(folder_ / "loaded"))
        EXPECT_NEAR(loss, trained,
                    words.empty()      ? 0
                    : compute == "f32" ? 1e-5
                                       : 1e-2)
            << compute << " " << words << " step " << step;
      const auto before = read_tensors(checkpoint_path(folder_ / compute, 30), "weights/");
      EXPECT_EQ(read_tensors(checkpoint_path(folder_ / "loaded", 3), "weights/"), before);
    }
  }
}

// A layout that loads a state and saves it again at the same step must give back the same bytes;
// with states that every layout has trained itself, this is every pair of layouts.
TEST_F(Resume, EveryLayoutReadsEveryOthersState) {
  struct Layout {
    const char* name;
    int ranks;
    Lines lines;
  };
  const std::vector<Layout> layouts = {{"one", 1, {}},
                                       {"dp2", 2, {"grid.dp=2"}},
                                       {"dp4", 4, {"grid.dp=4"}},
                                       {"tp2", 2, {"grid.tp=2"}},
                                       {"pp2", 2, {"grid.pp=2"}},
                                       {"tp2pp2", 4, {"grid.tp=2", "grid.pp=2"}}};
  auto run = [&](const Layout& layout, const std::string& name, int steps,
                 const std::string& load) {
    Lines lines = layout.lines;
    lines.push_back(fmt::format("run.steps={}", steps));
    lines.push_back("schedule.decay=3");
    lines.push_back("optimizer.bucket=3000");
    if (!load.empty()) lines.push_back("checkpoint.load=" + load);
    train(name, layout.ranks, lines);
  };
  run(layouts[0], "start", 2, "");
  const std::string start = checkpoint_path(folder_ / "start", 2).string();
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    const std::string kept = fmt::format("{}_kept", layout.name);
    run(layout, kept, 2, start);
    EXPECT_TRUE(checkpoint(kept, 2) == file_bytes(start));
    run(layout, layout.name, 3, start);
    const std::string back = fmt::format("{}_back", layout.name);
    run(layouts[0], back, 3, checkpoint_path(folder_ / layout.name, 3).string());
    EXPECT_TRUE(checkpoint(back, 3) == checkpoint(layout.name, 3));
    EXPECT_EQ(read_tensors(checkpoint_path(folder_ / layout.name, 3), "adam_v/").size(),
              read_tensors(start, "weights/").size());
  }
}

}  // namespace
}  // namespace trireme::test
