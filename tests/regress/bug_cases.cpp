// Public fault reports that the whole program must not show, beyond what the table of layouts, the
// resume, signal and fault tests cover. doc/test_plan.md lists every case.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/run_files.hpp"
#include "support/run_program.hpp"
#include "trireme/data/indexed_writer.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

class BugCases : public ::testing::Test {
 protected:
  BugCases() : folder_("bug_cases") {}

  struct Cut {
    int ranks;
    Lines lines;
  };

  std::vector<MetricsLine> train(const Cut& cut, const Lines& common,
                                 const std::string& before = "") {
    const std::filesystem::path directory = folder_ / "run";
    std::filesystem::remove_all(directory);
    Lines lines = common;
    lines.insert(lines.end(), cut.lines.begin(), cut.lines.end());
    lines.insert(lines.end(), {"run.directory=" + directory.string(), "schedule.warmup=0"});
    const ProgramResult result =
        run_command(before + launch_command(cut.ranks, small_run(folder_.path(), lines)));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_metrics(directory);
  }
  // Loss and norm of step 1, and all later losses, under every cut are those of the first one.
  void expect_equal(const std::vector<Cut>& cuts, const Lines& common, double limit = 1e-5) {
    const std::vector<MetricsLine> want = train(cuts.front(), common);
    ASSERT_FALSE(want.empty());
    EXPECT_GT(want[0].grad_norm, 0);
    for (size_t i = 1; i < cuts.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}", fmt::join(cuts[i].lines, " ")));
      const std::vector<MetricsLine> have = train(cuts[i], common);
      ASSERT_EQ(have.size(), want.size());
      for (size_t step = 0; step < want.size(); ++step) {
        EXPECT_NEAR(have[step].loss / want[step].loss, 1, limit) << step + 1;
        EXPECT_NEAR(have[step].grad_norm / want[step].grad_norm, 1, 10 * limit) << step + 1;
      }
    }
  }
  Lines dataset(const std::string& name, const std::vector<std::vector<int32_t>>& documents) {
    IndexedDatasetWriter writer({(folder_ / name).string(), TokenType::u16});
    for (const std::vector<int32_t>& document : documents) {
      writer.append(document);
      writer.end_document();
    }
    writer.commit();
    return {"data.path=" + (folder_ / name).string(), "data.split=1"};
  }
  // Every sample is the same: the tokens repeat with a period that divides the sequence.
  Lines equal_samples() {
    std::vector<int32_t> tokens;
    for (int i = 0; i < 2000; ++i) tokens.push_back((i % 5) * 11 + 3);
    return dataset("equal", {tokens});
  }

  ScratchFolder folder_;
};

Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// BR-01: padding rows of a split vocabulary carry no probability.
TEST_F(BugCases, AZeroHeadGivesTheLogarithmOfTheVocabulary) {
  const Lines model = {"model.family=llama", "model.tied=false", "model.bias=false",
                       "model.dropout=0", "run.steps=2"};
  const std::string weights = (folder_ / "zero.h5").string();
  make_weights(folder_.path(), weights,
               "--model.family=llama --model.tied=false --model.bias=false "
               "--all=head.weight=0");
  for (const Cut& cut : {Cut{1, {}}, Cut{2, {"grid.tp=2"}}, Cut{4, {"grid.tp=4"}}}) {
    const std::vector<MetricsLine> metrics =
        train(cut, model + Lines{"checkpoint.load=" + weights, "checkpoint.load_optimizer=false"});
    ASSERT_EQ(metrics.size(), 2u);
    EXPECT_NEAR(metrics[0].loss, std::log(61.0), 2e-6) << cut.ranks;
    const auto head = read_tensors(checkpoint_path(folder_ / "run", 2), "weights/head.weight");
    EXPECT_EQ(head.at("").size(), 61u * 24);
  }
}

// BR-10: the gradient is that of the mean over the global batch, however it is cut.
TEST_F(BugCases, AccumulationPipelineAndReplicasScaleAlike) {
  expect_equal({{1, {"batch.micro=8"}},
                {1, {"batch.micro=2"}},
                {1, {"batch.micro=1"}},
                {2, {"batch.micro=2", "grid.pp=2"}},
                {2, {"batch.micro=1", "grid.pp=2"}},
                {4, {"batch.micro=1", "grid.pp=2", "grid.dp=2"}}},
               {"run.steps=3", "optimizer.clip=0.5"});
}

// BR-11, BR-17: few samples of a batch carry counted tokens, others none: the mean is over tokens,
// and a micro-batch that counts nothing wipes nothing.
TEST_F(BugCases, UnequalNumbersOfCountedTokens) {
  std::vector<std::vector<int32_t>> documents;
  for (int d = 0; d < 40; ++d) {
    std::vector<int32_t> tokens(20, 60);
    for (int i = 0; i < (d % 8 == 0 ? 20 : d % 8 == 3 ? 7 : 0); ++i) tokens[i] = (d + 7 * i) % 60;
    documents.push_back(tokens);
  }
  expect_equal({{1, {"batch.micro=8"}},
                {1, {"batch.micro=1"}},
                {1, {"batch.micro=2"}},
                {2, {"grid.dp=2", "batch.micro=4"}},
                {2, {"grid.dp=2", "batch.micro=1", "optimizer.zero=0"}},
                {2, {"grid.pp=2", "batch.micro=1"}}},
               dataset("separators", documents) +
                   Lines{"data.eod=60", "data.eod_mask_loss=true", "run.steps=3"});
}

// BR-11: equal micro-batches give the norm of one of them, and the norm of a batch that repeats
// does not grow with the steps.
TEST_F(BugCases, EqualMicroBatchesGiveTheNormOfOne) {
  const Lines common = equal_samples() + Lines{"model.dropout=0", "optimizer.learning_rate=1e-4",
                                               "schedule.minimum=0", "run.steps=50"};
  const double one =
      train({1, {"batch.global=1", "batch.micro=1", "run.steps=1"}}, common).at(0).grad_norm;
  for (const Cut& cut : {Cut{1, {"batch.micro=1", "batch.global=4"}},
                         Cut{2, {"batch.micro=1", "batch.global=4", "grid.dp=2"}},
                         Cut{2, {"batch.micro=1", "grid.dp=2", "optimizer.zero=0"}},
                         Cut{2, {"batch.micro=1", "batch.global=4", "grid.pp=2"}}}) {
    const std::vector<MetricsLine> metrics = train(cut, common);
    ASSERT_EQ(metrics.size(), 50u);
    EXPECT_NEAR(metrics[0].grad_norm / one, 1, 1e-5);
    EXPECT_LT(metrics[49].grad_norm, 1.5 * one);
    EXPECT_LT(metrics[49].loss, metrics[0].loss);
  }
}

// BR-14: two replicas that read the same sample draw different masks, or their mean would be the
// loss of one of them alone.
TEST_F(BugCases, ReplicasDrawTheirOwnDropoutMasks) {
  for (const auto& [dropout, equal] : {std::pair{"0", true}, {"0.5", false}}) {
    const Lines common = equal_samples() + Lines{fmt::format("model.dropout={}", dropout),
                                                 "run.steps=1", "batch.micro=1"};
    const double one = train({1, {"batch.global=1"}}, common).at(0).loss;
    const double two = train({2, {"batch.global=2", "grid.dp=2"}}, common).at(0).loss;
    const double with_tp =
        train({4, {"batch.global=2", "grid.dp=2", "grid.tp=2"}}, common).at(0).loss;
    EXPECT_NEAR(two, with_tp, 1e-5);
    const double apart = std::fabs(one - two);
    EXPECT_TRUE(equal ? apart < 1e-6 : apart > 1e-4) << apart << " at dropout " << dropout;
  }
}

// BR-20: 64 equal micro-batches, added in f32, give the norm of one; in bf16 most would vanish.
TEST_F(BugCases, GradientsOfManyMicroBatchesDoNotVanishInBf16) {
  const Lines common = equal_samples() + Lines{"model.dropout=0", "precision.compute=bf16",
                                               "batch.micro=1", "run.steps=1"};
  const double one = train({1, {"batch.global=1"}}, common).at(0).grad_norm;
  EXPECT_NEAR(train({1, {"batch.global=64"}}, common).at(0).grad_norm / one, 1, 0.01);
  EXPECT_NEAR(train({4, {"batch.global=64", "grid.dp=4"}}, common).at(0).grad_norm / one, 1, 0.01);
}

// BR-13: no send is ever buffered by the transport, and nothing waits for ever.
TEST_F(BugCases, NothingReliesOnBufferedSends) {
  const Lines common = {"run.steps=2", "model.layers=4"};
  const Cut cut{4, {"grid.pp=2", "grid.virtual_stages=2", "grid.dp=2", "batch.micro=1"}};
  const std::vector<MetricsLine> usual = train(cut, common);
  EXPECT_EQ(train(cut, common,
                  "export OMPI_MCA_btl_vader_eager_limit=128 OMPI_MCA_btl=self,vader "
                  "OMPI_MCA_btl_vader_single_copy_mechanism=none; "),
            usual);
}

// BR-58: FLOPs and tokens are those of the model and the batch, whatever the layout. Two gated
// layers of width 64, 4 heads, 2 KV heads: the full square would be 691,200 a token.
TEST_F(BugCases, FlopsAndTokensDoNotDependOnTheLayout) {
  const Lines model = {"model.family=llama", "model.bias=false",    "model.tied=false",
                       "model.layers=2",     "model.hidden=64",     "model.kv_heads=2",
                       "model.vocab=256",    "batch.sequence=32",   "batch.global=8",
                       "run.steps=2",        "run.evaluate_every=1"};
  std::string overrides = " --schedule.warmup=0";
  for (const std::string& line : model) overrides += " --" + line;
  small_run(folder_.path(), {});
  const ProgramResult plan = run_command(
      fmt::format("{} plan {}{}", program_path(), (folder_ / "deck.ini").string(), overrides));
  EXPECT_NE(plan.output.find("691200 with the full square"), std::string::npos) << plan.output;
  const double half = 691200 - 3.0 * 2 * 4 * 16 * 32 * 2;  // scores and their use, causal at half
  EXPECT_NE(plan.output.find(fmt::format("{:.0f} a token forward and backward", half)),
            std::string::npos)
      << plan.output;
  for (const Cut& cut :
       {Cut{1, {"batch.micro=8"}}, Cut{1, {"batch.micro=1", "model.recompute=full"}},
        Cut{2, {"grid.dp=2"}}, Cut{4, {"grid.tp=2", "grid.pp=2"}}}) {
    train(cut, model);
    std::ifstream file(folder_ / "run" / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json r = nlohmann::json::parse(line);
      if (!r.contains("step_seconds")) continue;
      const double seconds = r["step_seconds"], tokens = r["tokens_per_second"];
      const double tflops = r["tflops_per_rank"];
      EXPECT_NEAR(tokens * seconds, 256, 1e-6);
      EXPECT_NEAR(tflops * 1e12 * seconds * cut.ranks / (256 * half), 1, 1e-9);
    }
  }
}

}  // namespace
}  // namespace trireme::test
