// The options of documents in whole runs: every layout trains alike with them, and each changes
// what is computed.
#include <gtest/gtest.h>

#include <cmath>

#include "support/run_files.hpp"
#include "support/run_json.hpp"
#include "support/run_program.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

class Documents : public ::testing::Test {
 protected:
  Documents() : folder_("documents") {}
  std::vector<MetricsLine> train(const std::string& name, int ranks, Lines lines) {
    lines.insert(lines.end(), {"run.directory=" + (folder_ / name).string(), "data.eod=7",
                               "run.evaluate_every=7", "run.evaluate_batches=2"});
    const ProgramResult result = run_trireme(ranks, small_run(folder_.path(), lines), 300);
    EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.output;
    return read_metrics(folder_ / name);
  }
  ScratchFolder folder_;
};

// Token 7 is in the data every few dozen tokens.
TEST_F(Documents, EveryLayoutTrainsAlike) {
  const Lines on = {"data.reset_positions=true", "data.reset_attention=true",
                    "data.eod_mask_loss=true"};
  struct Layout {
    const char* name;
    int ranks;
    Lines lines;
  };
  const std::vector<Layout> layouts = {
      {"pp3", 3, {"grid.pp=3", "model.recompute=full"}},
      {"dp2", 2, {"batch.micro=4"}},
      {"tp2pp2",
       4,
       {"grid.tp=2", "grid.pp=2", "grid.sequence_parallel=true", "model.recompute=selective"}}};
  for (const char* family : {"gpt2", "llama"}) {
    const auto with = [&](Lines lines) {
      lines.insert(lines.end(), on.begin(), on.end());
      lines.push_back(std::string("model.family=") + family);
      return lines;
    };
    const std::string one = std::string(family) + "_one";
    const std::vector<MetricsLine> want = train(one, 1, with({}));
    ASSERT_EQ(want.size(), 7u);
    for (const Layout& layout : layouts) {
      const std::string name = std::string(family) + "_" + layout.name;
      const std::vector<MetricsLine> have = train(name, layout.ranks, with(layout.lines));
      ASSERT_EQ(have.size(), 7u);
      for (size_t i = 0; i < 7; ++i) {
        EXPECT_NEAR(have[i].loss / want[i].loss, 1, 2e-6) << name << " step " << i;
        EXPECT_NEAR(have[i].grad_norm / want[i].grad_norm, 1, 2e-5) << name << " step " << i;
      }
      EXPECT_NEAR(read_validation(folder_ / name).at(7), read_validation(folder_ / one).at(7),
                  2e-6);
    }
    const ProgramResult again = run_trireme(1, "eval " + (folder_ / one).string());
    ASSERT_EQ(json_lines(again.output).size(), 1u) << again.output;
    EXPECT_EQ(json_lines(again.output)[0]["loss"].get<double>(),
              read_validation(folder_ / one).at(7));
  }
}

TEST_F(Documents, EachOptionMatters) {
  const auto first_loss = [&](const std::string& name, const Lines& lines) {
    const std::vector<MetricsLine> metrics = train(name, 1, lines);
    return metrics.empty() ? 0.0 : metrics[0].loss;
  };
  std::vector<double> losses = {first_loss("none", {})};
  for (const char* option : {"reset_positions", "reset_attention", "eod_mask_loss"})
    losses.push_back(first_loss(option, {std::string("data.") + option + "=true"}));
  for (size_t i = 0; i < losses.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(losses[i], losses[k]) << i << " " << k;
  const ProgramResult refused =
      run_trireme(1, small_run(folder_.path(), {"data.reset_attention=true"}));
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_NE(refused.output.find("data.reset_attention needs data.eod"), std::string::npos)
      << refused.output;
}

}  // namespace
}  // namespace trireme::test
