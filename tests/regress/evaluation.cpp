// Evaluation measures and changes nothing: training is the same for every interval, fixed weights
// give one value, and the whole validation part counts each of its tokens once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/run_files.hpp"
#include "support/run_program.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

class Evaluation : public ::testing::Test {
 protected:
  Evaluation() : folder_("evaluation") {}

  void train(const std::string& name, int ranks, Lines lines) {
    lines.push_back("run.directory=" + (folder_ / name).string());
    const ProgramResult result = run_trireme(ranks, small_run(folder_.path(), lines));
    ASSERT_EQ(result.exit_code, 0) << name << "\n" << result.output;
  }
  // Validation tokens of each evaluation.
  std::vector<int64_t> tokens(const std::string& name) const {
    std::ifstream file(folder_ / name / "metrics.jsonl");
    std::vector<int64_t> counts;
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("validation_tokens")) counts.push_back(record["validation_tokens"]);
    }
    return counts;
  }

  ScratchFolder folder_;
};

TEST_F(Evaluation, TrainingIsTheSameForEveryInterval) {
  std::string want;
  std::vector<MetricsLine> metrics;
  for (int every : {0, 1, 3}) {
    const std::string name = fmt::format("every{}", every);
    train(name, 2,
          {"grid.pp=2", fmt::format("run.evaluate_every={}", every), "run.evaluate_batches=3"});
    const std::string have = file_bytes(checkpoint_path(folder_ / name, 7));
    ASSERT_GT(have.size(), 1000u);
    if (want.empty()) {
      want = have;
      metrics = read_metrics(folder_ / name);
    }
    EXPECT_TRUE(have == want) << name;
    EXPECT_EQ(read_metrics(folder_ / name), metrics) << name;
    EXPECT_EQ(read_validation(folder_ / name).size(), every == 0 ? 0u : every == 1 ? 7u : 3u);
  }
}

// Learning rate 0: five evaluations give one value, and so does one after a resume. Dropout is on
// in training only: without it the value is the same.
TEST_F(Evaluation, FixedWeightsGiveOneValue) {
  const Lines still = {"optimizer.learning_rate=0", "schedule.minimum=0", "run.evaluate_every=1",
                       "schedule.decay=9"};
  auto with = [&](Lines lines) {
    lines.insert(lines.end(), still.begin(), still.end());
    return lines;
  };
  train("run", 1, with({"run.steps=5"}));
  train("run", 1, with({"run.steps=6"}));
  const std::map<int64_t, double> losses = read_validation(folder_ / "run");
  ASSERT_EQ(losses.size(), 6u);
  for (const auto& [step, loss] : losses) EXPECT_EQ(loss, losses.at(1)) << step;
  train("without", 1, with({"run.steps=1", "model.dropout=0"}));
  EXPECT_EQ(read_validation(folder_ / "without").at(1), losses.at(1));
  const std::vector<MetricsLine> metrics = read_metrics(folder_ / "run");
  EXPECT_NE(metrics[0].loss, read_metrics(folder_ / "without").at(0).loss);
}

// 20 of 200 documents of 60 + d % 37 tokens are the last tenth. No batch size divides the number of
// samples, so the last batch is filled up with rows that must not count.
TEST_F(Evaluation, TheWholeValidationPartCountsOnce) {
  int64_t held_out = 0;
  for (int d = 180; d < 200; ++d) held_out += 60 + d % 37;
  const int64_t samples = (held_out - 1) / 20;
  ASSERT_NE(samples % 5, 0);
  struct Cut {
    const char* name;
    int ranks;
    Lines lines;
  };
  const std::vector<Cut> cuts = {{"one", 1, {"batch.global=1", "batch.micro=1"}},
                                 {"five", 1, {"batch.global=5", "batch.micro=5"}},
                                 {"dp2", 2, {"batch.global=8", "grid.dp=2"}},
                                 {"pp2", 2, {"batch.global=14", "grid.pp=2"}}};
  for (const Cut& cut : cuts) {
    Lines lines = cut.lines;
    lines.insert(lines.end(),
                 {"run.steps=1", "optimizer.learning_rate=0", "schedule.minimum=0",
                  "schedule.warmup=0", "run.evaluate_every=1", "run.evaluate_batches=0"});
    train(cut.name, cut.ranks, lines);
    EXPECT_EQ(tokens(cut.name), std::vector<int64_t>{samples * 20}) << cut.name;
    EXPECT_NEAR(read_validation(folder_ / cut.name).at(1), read_validation(folder_ / "one").at(1),
                2e-6)
        << cut.name;
  }
  // A few batches are another, smaller set.
  train("few", 1,
        {"run.steps=1", "optimizer.learning_rate=0", "schedule.minimum=0", "schedule.warmup=0",
         "run.evaluate_every=1", "run.evaluate_batches=2"});
  EXPECT_EQ(tokens("few"), std::vector<int64_t>{2 * 8 * 20});
}

}  // namespace
}  // namespace trireme::test
