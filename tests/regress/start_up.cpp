// The first second of a job: worlds that are not what the launcher promised, ranks with other
// decks, the end of the job's time, saves on request, and the record that a run is complete.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <ctime>

#include "support/run_background.hpp"
#include "support/run_files.hpp"
#include "trireme/io/checkpoint_directory.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

class StartUp : public ::testing::Test {
 protected:
  StartUp() : folder_("start_up") {}

  std::string words(Lines lines) {
    lines.insert(lines.begin(), {"run.directory=" + (folder_ / "run").string(), "run.steps=4",
                                 "data.order=random", "schedule.decay=300"});
    return small_run(folder_.path(), lines);
  }
  static void expect_text(const ProgramResult& result, const std::string& text) {
    EXPECT_NE(result.output.find(text), std::string::npos) << text << "\n" << result.output;
  }
  void expect_refused(const std::string& variables, const Lines& lines, const std::string& text) {
    const ProgramResult result =
        run_command("env " + variables + " " + launch_command(2, words(lines)));
    EXPECT_EQ(result.exit_code, 78) << result.output;
    expect_text(result, text);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run")) << "something was written";
  }
  std::vector<NamedCheckpoint> checkpoints() const {
    return list_checkpoints(folder_ / "run" / "checkpoints");
  }

  ScratchFolder folder_;
};

TEST_F(StartUp, AnotherWorldThanPromisedIsRefused) {
  expect_refused("TRIREME_RANKS=3", {}, "TRIREME_RANKS says 3 ranks, MPI gives 2");
  expect_refused("TRIREME_NODES=2", {}, "TRIREME_NODES says 2 hosts, the 2 ranks are on 1");
  expect_refused("", {"grid.nodes=2"}, "grid.nodes says 2 hosts");
  expect_refused("", {"grid.ranks=4"}, "grid.ranks says 4 ranks, MPI gives 2");
  // What the deck says goes first; the table names the ranks.
  const ProgramResult result =
      run_command("env TRIREME_RANKS=3 TRIREME_NODES=7 " +
                  launch_command(2, words({"grid.ranks=2", "grid.nodes=1", "grid.tp=2"})));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  expect_text(result, "rank  host");
  expect_text(result, "processors");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "complete.json"));
}

// A srun that does not reach MPI starts single ranks, each with its task's variables.
TEST_F(StartUp, ASingleRankOfManyTasksIsRefused) {
  const std::string slurm =
      "env SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 ";
  const std::string start = program_path() + " " + words({});
  ProgramResult result = run_command(slurm + start);
  EXPECT_EQ(result.exit_code, 78) << result.output;
  expect_text(result, "srun started 4 tasks but offers no PMI");
  result = run_command("env SLURM_NTASKS=4 SLURM_JOB_NUM_NODES=2 " + start);
  EXPECT_EQ(result.exit_code, 78) << result.output;
  expect_text(result, "SLURM_NTASKS says 4 ranks, MPI gives 1");
}

TEST_F(StartUp, RanksWithAnotherDeckAreNamed) {
  const std::string command = launch_command(1, words({}));
  const ProgramResult result =
      run_command(command + " : -n 1 " + program_path() + " " + words({"run.seed=77"}));
  EXPECT_EQ(result.exit_code, 78) << result.output;
  expect_text(result, "the deck of rank 1 on ");
  expect_text(result, "run.seed: 77 there, 11 on rank 0");
}

TEST_F(StartUp, TheEndOfTheTimeSavesAndStops) {
  const ProgramResult result = run_command(
      fmt::format("env TRIREME_DEADLINE={} ", std::time(nullptr) + 1) +
      launch_command(2, words({"run.steps=1000000", "fault.stop_before=1000", "grid.tp=2"})));
  EXPECT_EQ(result.exit_code, 75) << result.output;
  expect_text(result, "(TRIREME_DEADLINE): the run saves and stops");
  expect_text(result, "stopped after step 1;");  // a start takes one step at least
  ASSERT_EQ(checkpoints().size(), 1u);
  EXPECT_EQ(checkpoints().front().step, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "complete.json"));
}

TEST_F(StartUp, Usr2SavesAndGoesOn) {
  BackgroundRun run(2, words({"run.steps=1000000", "grid.pp=2", "log.every=1000"}),
                    folder_ / "output");
  ASSERT_TRUE(run.wait_for_step(folder_ / "run", 5)) << run.output();
  ::kill(run.ranks().at(1), SIGUSR2);
  EXPECT_TRUE(run.wait_until([&] { return !checkpoints().empty(); })) << run.output();
  ASSERT_FALSE(checkpoints().empty());
  const int64_t saved = checkpoints().front().step;
  EXPECT_TRUE(run.wait_for_step(folder_ / "run", saved + 10)) << run.output();
  EXPECT_EQ(checkpoints().size(), 1u) << "one request, one save";
  ::kill(run.launcher(), SIGUSR1);
  EXPECT_EQ(run.wait().exit_code, 75);
}

TEST_F(StartUp, LinksAreMeasured) {
  const ProgramResult result =
      run_trireme(4, "bench comm --grid.tp=2 --grid.pp=2 --most=4096", 120);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  expect_text(result, "links tp   2: median");
  expect_text(result, "links pp   2: median");
  expect_text(result, "link       tp rank 0 on ");
  expect_text(result, " - rank 3 on ");
  expect_text(result, "slow ranks ");
}

}  // namespace
}  // namespace trireme::test
