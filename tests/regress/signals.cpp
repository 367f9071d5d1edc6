// Signals to a running job: what it saves, how it ends, and that the resumed run is the straight
// one. A hanging rank is found and named.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <thread>

#include "support/run_background.hpp"
#include "support/run_files.hpp"
#include "trireme/io/checkpoint_directory.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;
constexpr int64_t kEndless = 1000000;

class Signals : public ::testing::Test {
 protected:
  Signals() : folder_("signals") {}

  // Random windows do not depend on the length of the run: whenever the signals come, the straight
  // run can be as long as the interrupted one.
  std::string words(const std::string& name, int64_t steps, Lines lines) {
    lines.insert(lines.begin(),
                 {"run.directory=" + (folder_ / name).string(), fmt::format("run.steps={}", steps),
                  "schedule.decay=300", "data.order=random", "log.every=50"});
    return small_run(folder_.path(), lines);
  }
  // Takes a few more steps and compares with a run that was never stopped.
  void finish(int ranks, const Lines& lines) {
    const int64_t steps = saved_step() + 5;
    for (const char* name : {"straight", "stopped"}) {
      const ProgramResult result = run_trireme(ranks, words(name, steps, lines), 120);
      ASSERT_EQ(result.exit_code, 0) << result.output;
    }
    ASSERT_EQ(read_metrics(folder_ / "stopped").size(), static_cast<size_t>(steps));
    EXPECT_EQ(read_metrics(folder_ / "stopped"), read_metrics(folder_ / "straight"));
    EXPECT_EQ(read_validation(folder_ / "stopped"), read_validation(folder_ / "straight"));
    const std::string want = file_bytes(checkpoint_path(folder_ / "straight", steps));
    ASSERT_GT(want.size(), 1000u);
    EXPECT_TRUE(file_bytes(checkpoint_path(folder_ / "stopped", steps)) == want);
  }
  // Lets the run get to `step` (0: all ranks listen), does `act`, and returns how the job ended.
  ProgramResult interrupt(int ranks, const Lines& lines, int64_t step,
                          const std::function<void(const BackgroundRun&)>& act) {
    BackgroundRun run(ranks, words("stopped", kEndless, lines), folder_ / "output");
    EXPECT_TRUE(run.wait_until_ranks_listen()) << run.output();
    const bool reached = step == 0 || run.wait_for_step(folder_ / "stopped", step);
    EXPECT_TRUE(reached) << run.output();
    act(run);
    return run.wait(30);
  }
  // -1: none.
  int64_t saved_step() const {
    const auto files = list_checkpoints(folder_ / "stopped" / "checkpoints");
    return files.empty() ? -1 : files.front().step;
  }

  ScratchFolder folder_;
};

TEST_F(Signals, Usr1ToTheLauncherToOneRankAndAtTheStart) {
  const Lines lines = {"grid.tp=2"};
  // During start-up: nothing is lost, the state of step 0 or of the first steps is saved.
  ProgramResult ended =
      interrupt(2, lines, 0, [](const BackgroundRun& run) { ::kill(run.ranks().at(1), SIGUSR1); });
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  const int64_t first = saved_step();
  EXPECT_GE(first, 0);
  // To mpirun, which passes it on, twice in a row.
  ended = interrupt(2, lines, first + 20, [](const BackgroundRun& run) {
    ::kill(run.launcher(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ::kill(run.launcher(), SIGUSR1);
  });
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  const int64_t second = saved_step();
  EXPECT_GE(second, first + 20);
  EXPECT_NE(ended.output.find(fmt::format("stopped after step {}; start again", second)),
            std::string::npos)
      << ended.output;
  // To a single rank.
  ended = interrupt(2, lines, second + 20,
                    [](const BackgroundRun& run) { ::kill(run.ranks().at(0), SIGUSR1); });
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_GE(saved_step(), second + 20);
  finish(2, lines);
}

// A save and an evaluation after every step: the signal comes in the middle of one of them.
TEST_F(Signals, Usr1DuringSavesAndEvaluations) {
  const Lines lines = {"grid.dp=2", "checkpoint.every=1", "checkpoint.keep=3",
                       "run.evaluate_every=1", "run.evaluate_batches=2"};
  for (int64_t step : {10, 41}) {
    const ProgramResult ended = interrupt(
        2, lines, step, [](const BackgroundRun& run) { ::kill(run.launcher(), SIGUSR1); });
    EXPECT_EQ(ended.exit_code, 75) << ended.output;
    EXPECT_GE(saved_step(), step);
  }
  finish(2, lines);
}

// mpirun kills two seconds after TERM and returns 1 whatever the ranks did; a small state is saved
// in time. TERM to the ranks alone returns their 75.
TEST_F(Signals, TermSavesWithinTheGrace) {
  const Lines lines = {"grid.pp=2"};
  ProgramResult ended =
      interrupt(2, lines, 20, [](const BackgroundRun& run) { ::kill(run.launcher(), SIGTERM); });
  EXPECT_NE(ended.exit_code, 0) << ended.output;
  EXPECT_LT(ended.seconds, 10);
  const int64_t first = std::max<int64_t>(saved_step(), 0);
  ended = interrupt(2, lines, first + 20, [](const BackgroundRun& run) {
    for (const auto& [rank, process] : run.ranks()) ::kill(process, SIGTERM);
  });
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_GE(saved_step(), first);
  finish(2, lines);
}

TEST_F(Signals, TermStartsNoSaveThatTheGraceIsTooShortFor) {
  const Lines lines = {"checkpoint.every=25", "fault.grace=0"};
  ProgramResult ended = interrupt(2, lines, 30, [](const BackgroundRun& run) {
    for (const auto& [rank, process] : run.ranks()) ::kill(process, SIGTERM);
  });
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_NE(ended.output.find("is not saved: the last save took"), std::string::npos)
      << ended.output;
  EXPECT_EQ(saved_step() % 25, 0);
  // With time to spare the same signal saves.
  Lines patient = lines;
  patient.push_back("fault.grace=100");
  ended = interrupt(2, patient, saved_step() + 27, [](const BackgroundRun& run) {
    for (const auto& [rank, process] : run.ranks()) ::kill(process, SIGINT);
  });
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_EQ(ended.output.find("is not saved"), std::string::npos) << ended.output;
  finish(2, lines);
}

// The peers of a stopped rank wait for it; their deadline ends the job and says for whom.
TEST_F(Signals, AStoppedRankIsNamedAtTheDeadline) {
  for (const auto& [rank, layout] :
       std::vector<std::pair<int, std::string>>{{1, "grid.tp=2"}, {0, "grid.pp=2"}}) {
    const Lines lines = {layout, "fault.deadline=2"};
    std::filesystem::remove_all(folder_ / "stopped");
    const ProgramResult ended = interrupt(2, lines, 10, [rank = rank](const BackgroundRun& run) {
      ::kill(run.ranks().at(rank), SIGSTOP);
    });
    EXPECT_EQ(ended.exit_code, 76) << ended.output;
    EXPECT_LT(ended.seconds, 15);
    const size_t line = ended.output.find(fmt::format("  rank {} on ", rank));
    ASSERT_NE(line, std::string::npos) << ended.output;
    EXPECT_NE(ended.output.find("<- stopped or gone", line), std::string::npos) << ended.output;
    EXPECT_EQ(ended.output.find("<- stopped or gone"), ended.output.rfind("<- stopped or gone"));
  }
}

}  // namespace
}  // namespace trireme::test
