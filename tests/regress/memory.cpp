// The plan is the run: `trireme plan` prints the bytes that every stage of the run takes, and the
// process takes little more than that.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <sstream>

#include "support/run_files.hpp"
#include "support/run_program.hpp"

namespace trireme::test {
namespace {

// The numbers behind `label` on its line.
std::vector<int64_t> numbers_behind(const std::string& text, const std::string& label) {
  std::vector<int64_t> numbers;
  const size_t at = text.find(label);
  if (at == std::string::npos) return numbers;
  std::istringstream line(text.substr(at + label.size(), text.find('\n', at) - at - label.size()));
  for (int64_t number; line >> number;) numbers.push_back(number);
  return numbers;
}

class MemoryOfARun : public ::testing::Test {
 protected:
  MemoryOfARun() : folder_("memory") {}
  std::vector<int64_t> planned(int ranks, const std::string& overrides) {
    small_run(folder_.path(), {});
    const ProgramResult plan =
        run_command(fmt::format("{} plan {} --ranks {} {}", program_path(),
                                (folder_ / "deck.ini").string(), ranks, overrides));
    EXPECT_EQ(plan.exit_code, 0) << plan.output;
    return numbers_behind(plan.output, "sum in bytes");
  }
  ProgramResult run(int ranks, const std::string& overrides) {
    std::filesystem::remove_all(folder_ / "run");
    const ProgramResult result = run_trireme(
        ranks, fmt::format("train {} --run.directory={} {}", (folder_ / "deck.ini").string(),
                           (folder_ / "run").string(), overrides));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result;
  }

  ScratchFolder folder_;
};

TEST_F(MemoryOfARun, IsThatOfThePlan) {
  const std::vector<std::pair<int, std::string>> layouts = {
      {1, ""},
      {1, "--model.recompute=selective --batch.micro=1"},
      {2, "--grid.dp=2 --optimizer.zero=0"},
      {2, "--grid.tp=2 --grid.sequence_parallel=true --model.recompute=full"},
      {2, "--grid.pp=2 --precision.compute=bf16 --run.evaluate_every=1"},
      {4, "--grid.pp=2 --grid.tp=2 --grid.virtual_stages=2 --model.layers=5 --batch.micro=1"},
      {4,
       "--grid.pp=2 --grid.dp=2 --batch.ramp_start=4 --batch.ramp_increment=4 "
       "--batch.ramp_samples=8"}};
  for (const auto& [ranks, overrides] : layouts) {
    const std::string all = overrides + " --run.steps=2 --schedule.warmup=0";
    const std::vector<int64_t> plan = planned(ranks, all);
    ASSERT_FALSE(plan.empty());
    EXPECT_EQ(
        numbers_behind(run(ranks, all).output, "bytes planned and taken on a rank of each stage:"),
        plan)
        << overrides;
    fmt::print("{} ranks {}: {} bytes\n", ranks, overrides, fmt::join(plan, " and "));
  }
}

// Peak resident memory of a process, for a model that outweighs program and libraries.
TEST_F(MemoryOfARun, ResidentMemoryIsThatOfThePlan) {
  const std::string overrides =
      "--model.layers=6 --model.hidden=384 --model.ffn=1536 --model.vocab=8000 --batch.global=2 "
      "--batch.micro=2 --data.kind=mock --batch.sequence=128 --run.steps=1 --schedule.warmup=0";
  const std::vector<int64_t> plan = planned(1, overrides);
  ASSERT_EQ(plan.size(), 1u);
  run(1, overrides);
  rusage used = {};
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &used), 0);
  const double resident = 1024.0 * static_cast<double>(used.ru_maxrss);
  const auto planned_bytes = static_cast<double>(plan[0]);
  fmt::print("planned {:.0f} MiB, resident {:.0f} MiB\n", planned_bytes / (1 << 20),
             resident / (1 << 20));
  EXPECT_GT(resident, 0.8 * planned_bytes);
  EXPECT_LT(resident, 1.2 * planned_bytes + (64 << 20));  // and the program with its libraries
}

}  // namespace
}  // namespace trireme::test
