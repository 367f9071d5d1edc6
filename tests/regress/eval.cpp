// trireme eval: the run's own validation loss to the bit, any dataset on any layout, and llm.c's
// multiple-choice files against scores worked out from the weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support/choice_bytes.hpp"
#include "support/run_files.hpp"
#include "support/run_json.hpp"
#include "support/run_program.hpp"

namespace trireme::test {
namespace {

class Eval : public ::testing::Test {
 protected:
  Eval() : folder_("eval") {}
  nlohmann::json eval(int ranks, const std::string& words) {
    const ProgramResult result = run_trireme(ranks, "eval " + words, 300);
    EXPECT_EQ(result.exit_code, 0) << words << "\n" << result.output;
    const auto lines = json_lines(result.output);
    EXPECT_EQ(lines.size(), 1u) << result.output;
    return lines.empty() ? nlohmann::json() : lines[0];
  }
  void expect_refused(const std::string& words, int code, const std::string& text) {
    const ProgramResult result =
        run_command("OMP_NUM_THREADS=1 " + program_path() + " eval " + words);
    EXPECT_EQ(result.exit_code, code) << words << "\n" << result.output;
    EXPECT_NE(result.output.find(text), std::string::npos) << words << "\n" << result.output;
  }
  ScratchFolder folder_;
};

TEST_F(Eval, IsTheRunsOwnValidationLoss) {
  for (const auto& [ranks, lines] : std::vector<std::pair<int, std::vector<std::string>>>{
           {1, {"run.evaluate_batches=3"}},
           {2, {"grid.tp=2", "grid.sequence_parallel=true", "run.evaluate_batches=3"}},
           {2, {"grid.pp=2", "model.recompute=selective", "run.evaluate_batches=3"}},
           {2, {"batch.micro=4", "run.evaluate_batches=0"}}}) {
    const std::string run = (folder_ / fmt::format("run{}", lines[0])).string();
    std::vector<std::string> all = lines;
    all.insert(all.end(), {"run.directory=" + run, "run.evaluate_every=7"});
    const ProgramResult trained = run_trireme(ranks, small_run(folder_.path(), all), 300);
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    const double want = read_validation(run).at(7);
    const nlohmann::json have = eval(ranks, run);
    EXPECT_EQ(have["loss"].get<double>(), want) << lines[0];
    EXPECT_EQ(have["step"], 7);
    EXPECT_DOUBLE_EQ(have["perplexity"].get<double>(), std::exp(want));
    EXPECT_FALSE(have.contains("bits_per_byte"));
    if (ranks == 1) continue;
    EXPECT_NEAR(eval(1, run)["loss"].get<double>(), want, 2e-6) << lines[0];
  }
}

// 200 documents of 60 + d % 37 tokens; ids of 257 or fewer are bytes, none of them ends a document.
TEST_F(Eval, AnyDatasetWhole) {
  const std::string run = (folder_ / "run").string();
  const ProgramResult trained = run_trireme(
      1, small_run(folder_.path(), {"run.directory=" + run, "model.vocab=257", "data.eod=256"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  write_dataset(folder_ / "other", 50, 23);
  int64_t tokens = 0;
  for (int d = 0; d < 23; ++d) tokens += 60 + d % 37;
  const int64_t counted = (tokens - 1) / 20 * 20;
  const nlohmann::json one = eval(1, run + " --dataset " + (folder_ / "other").string());
  EXPECT_EQ(one["tokens"], counted);
  EXPECT_EQ(one["dataset"], (folder_ / "other").string());
  EXPECT_NEAR(one["bits_per_byte"].get<double>(), one["loss"].get<double>() / std::log(2.0), 1e-9);
  const nlohmann::json two =
      eval(2, run + " --grid.tp=2 --dataset " + (folder_ / "other").string());
  EXPECT_EQ(two["tokens"], counted);
  EXPECT_NEAR(two["loss"].get<double>(), one["loss"].get<double>(), 2e-6);
  const std::string named = " \"--data.validation_sets=odd: " + (folder_ / "other").string() + "\"";
  EXPECT_EQ(eval(1, run + named + " --part odd --batches 0")["loss"], one["loss"]);
  EXPECT_NE(eval(1, run + " --part train --batches 2")["loss"], one["loss"]);
  expect_refused(run + " --dataset " + (folder_ / "none").string(), 66, "none");
  expect_refused(run + " --part later", 64, "there is no part");
  expect_refused(run + " --part test", 78, "test");
  expect_refused(run + " --task quiz --file x", 64, "quiz is not known");
  expect_refused(run + " --task hellaswag", 64, "go together");
  expect_refused(run + " --task hellaswag --file /nonexistent", 66, "no such file");
  expect_refused("/nonexistent", 66, "no such checkpoint");
}

// With the last norm's gain 0 every position has the same logits, bias times table: what a token
// costs is known from the weights.
TEST_F(Eval, HellaswagScores) {
  const std::filesystem::path weights = folder_ / "weights.h5";
  make_weights(folder_.path(), weights, "--model.positions=40 --all=final_norm.gain=0");
  const auto tensors = read_tensors(weights, "weights/");
  const std::vector<float>&table = tensors.at("embedding.tokens"),
        &bias = tensors.at("final_norm.bias");
  std::vector<double> cost(61);
  double sum = 0;
  for (size_t v = 0; v < cost.size(); ++v) {
    for (size_t i = 0; i < bias.size(); ++i)
      cost[v] -= double{bias[i]} * table[v * bias.size() + i];
    sum += std::exp(-cost[v]);
  }
  for (double& x : cost) x += std::log(sum);
  std::vector<ChoiceExample> examples;
  uint32_t state = 7;
  const auto below = [&](uint32_t limit) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int32_t>((state >> 8) % limit);
  };
  int64_t right = 0;
  for (int n = 0; n < 23; ++n) {
    ChoiceExample& e = examples.emplace_back();
    for (int i = 0; i < 1 + n % 9; ++i) e.context.push_back(below(61));
    double best = 1e30;
    int32_t choice = 0;
    for (int c = 0; c < 4; ++c) {
      auto& completion = e.completions.emplace_back();
      const int length = 1 + below(6);
      double mean = 0;
      for (int i = 0; i < length; ++i) {
        completion.push_back(below(61));
        mean += cost[static_cast<size_t>(completion.back())] / length;
      }
      if (mean < best) best = mean, choice = c;
    }
    e.label = n % 3 == 0 ? (choice + 1) % 4 : choice;
    right += e.label == choice;
  }
  const std::string file = (folder_ / "choices.bin").string();
  std::ofstream(file, std::ios::binary) << choice_bytes(examples);
  for (const auto& [ranks, layout] : std::vector<std::pair<int, std::string>>{
           {1, ""}, {2, " --grid.pp=2 --batch.micro=3"}, {2, " --grid.tp=2"}, {2, ""}}) {
    const nlohmann::json have =
        eval(ranks, weights.string() + " --task hellaswag --file " + file + layout);
    EXPECT_EQ(have["correct"], right) << layout;
    EXPECT_EQ(have["examples"], 23);
    EXPECT_DOUBLE_EQ(have["accuracy"].get<double>(), static_cast<double>(right) / 23);
  }
  EXPECT_EQ(eval(1, weights.string() + " --task hellaswag --examples 4 --file " + file)["examples"],
            4);
  examples[5].context.assign(40, 1);
  std::ofstream(file, std::ios::binary) << choice_bytes(examples);
  expect_refused(weights.string() + " --task hellaswag --file " + file, 65, "example 5 has");
}

}  // namespace
}  // namespace trireme::test
