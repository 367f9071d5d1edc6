// What goes wrong in the middle of a run: disks that fill up, files that break, ranks that are
// killed, gradients that are not finite. The last good checkpoint stays, and the run goes on from
// it as if nothing had happened.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <thread>

#include "support/run_background.hpp"
#include "support/run_files.hpp"
#include "trireme/io/checkpoint_directory.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

class Failures : public ::testing::Test {
 protected:
  Failures() : folder_("failures") {}

  std::string words(const std::filesystem::path& directory, Lines lines) {
    lines.push_back("run.directory=" + directory.string());
    return small_run(folder_.path(), lines);
  }
  ProgramResult train(const std::filesystem::path& directory, int ranks, const Lines& lines,
                      int code = 0) {
    const ProgramResult result = run_trireme(ranks, words(directory, lines));
    EXPECT_EQ(result.exit_code, code) << result.output;
    return result;
  }
  static void expect_text(const ProgramResult& result, const std::string& text) {
    EXPECT_NE(result.output.find(text), std::string::npos) << text << "\n" << result.output;
  }
  static std::vector<int64_t> steps_in(const std::filesystem::path& directory) {
    std::vector<int64_t> steps;
    for (const NamedCheckpoint& c : list_checkpoints(directory / "checkpoints"))
      steps.push_back(c.step);
    return steps;
  }
  static void expect_all_whole(const std::filesystem::path& directory) {
    for (int64_t step : steps_in(directory)) {
      const ProgramResult result = run_command(
          fmt::format("{} verify {}", program_path(), checkpoint_path(directory, step).string()));
      EXPECT_EQ(result.exit_code, 0) << result.output;
      expect_text(result, "no NaN, no infinity");
    }
  }

  ScratchFolder folder_;
};

TEST_F(Failures, ADamagedNewestCheckpointIsPassedOver) {
  const Lines lines = {"checkpoint.every=2", "run.steps=6", "grid.dp=2"};
  const std::filesystem::path directory = folder_ / "run";
  train(directory, 2, lines);
  const std::string want = file_bytes(checkpoint_path(directory, 6));
  const std::vector<MetricsLine> metrics = read_metrics(directory);
  flip_bit(checkpoint_path(directory, 6), static_cast<int64_t>(want.size() / 2));
  std::filesystem::resize_file(checkpoint_path(directory, 4), 5000);
  const ProgramResult resumed = train(directory, 2, lines);
  expect_text(resumed, "skipping broken checkpoint " + checkpoint_path(directory, 6).string());
  expect_text(resumed, "skipping broken checkpoint " + checkpoint_path(directory, 4).string());
  expect_text(resumed, "resumed from " + checkpoint_path(directory, 2).string());
  EXPECT_TRUE(file_bytes(checkpoint_path(directory, 6)) == want);
  EXPECT_EQ(read_metrics(directory), metrics);
  // Nothing whole is left: a run does not start over in silence.
  for (int64_t step : {2, 4, 6}) std::filesystem::resize_file(checkpoint_path(directory, step), 99);
  expect_text(train(directory, 2, lines, 65), "none of the 3 checkpoints");
}

TEST_F(Failures, TheDiskFillsUpBeforeALaterSave) {
  const SmallDisk disk(folder_ / "disk", 5 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  const std::filesystem::path straight = folder_ / "straight", directory = folder_ / "disk" / "run";
  const Lines lines = {"checkpoint.every=2", "checkpoint.retries=0", "run.steps=8", "grid.pp=2"};
  train(straight, 2, lines);
  const ProgramResult failed = train(directory, 2, lines, 74);
  expect_text(failed, "No space left");
  EXPECT_LT(failed.seconds, 10);
  const std::vector<int64_t> kept = steps_in(directory);
  ASSERT_FALSE(kept.empty());
  ASSERT_LT(kept.front(), 8);
  for (int64_t step : kept)
    EXPECT_TRUE(file_bytes(checkpoint_path(directory, step)) ==
                file_bytes(checkpoint_path(straight, step)));
  ASSERT_TRUE(disk.resize(64 << 10));
  expect_text(train(directory, 2, lines), fmt::format("(step {})", kept.front()));
  EXPECT_TRUE(file_bytes(checkpoint_path(directory, 8)) ==
              file_bytes(checkpoint_path(straight, 8)));
  EXPECT_EQ(read_metrics(directory), read_metrics(straight));
}

// A failed save is a warning: training goes on, and when there is space again nothing is lost.
TEST_F(Failures, AFailedSaveIsTriedAgain) {
  const SmallDisk disk(folder_ / "disk", 5 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  const std::filesystem::path straight = folder_ / "straight", directory = folder_ / "disk" / "run";
  const Lines lines = {"checkpoint.every=2", "run.steps=12", "grid.dp=2",
                       "checkpoint.retry_after=0.5", "checkpoint.retries=100"};
  train(straight, 2, lines);
  BackgroundRun run(2, words(directory, lines), folder_ / "output");
  const auto failed = [&] { return run.output().find("failed: ") != std::string::npos; };
  ASSERT_TRUE(run.wait_until(failed)) << run.output();
  ASSERT_TRUE(disk.resize(64 << 10));
  const ProgramResult ended = run.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  expect_text(ended, "No space left");
  expect_text(ended, "of 100 follows in 0.5 s");
  for (int64_t step : steps_in(directory))
    EXPECT_TRUE(file_bytes(checkpoint_path(directory, step)) ==
                file_bytes(checkpoint_path(straight, step)));
  EXPECT_EQ(steps_in(directory).front(), 12);
  EXPECT_EQ(read_metrics(directory), read_metrics(straight));
  // With a budget of two the third failure ends the job.
  disk.fill_up_to(64);
  const ProgramResult over =
      train(directory, 2,
            {"checkpoint.every=2", "run.steps=14", "schedule.decay=12", "checkpoint.retry_after=0",
             "checkpoint.retries=2", "grid.dp=2"},
            74);
  EXPECT_EQ(steps_in(directory).front(), 12);
}

// A rank that is killed takes the job with it: mpirun returns 128 + 9, nobody stays behind.
TEST_F(Failures, AKilledRankEndsTheJob) {
  for (const auto& [rank, layout] :
       std::vector<std::pair<int, std::string>>{{1, "grid.tp=2"}, {0, "grid.dp=2"}}) {
    BackgroundRun run(2, words(folder_ / layout, {"run.steps=5000", layout}), folder_ / "output");
    ASSERT_TRUE(run.wait_for_step(folder_ / layout, 5)) << run.output();
    const std::map<int, pid_t> processes = run.ranks();
    ASSERT_EQ(processes.size(), 2u);
    ::kill(processes.at(rank), SIGKILL);
    const ProgramResult ended = run.wait(20);
    EXPECT_EQ(ended.exit_code, 137) << ended.output;
    EXPECT_LT(ended.seconds, 10);
    for (const auto& [other, process] : processes) EXPECT_FALSE(is_running(process)) << other;
  }
}

// Killed again and again at any moment of a run that saves after every step: what is found is
// whole, what is half written is removed, and the end is that of the straight run.
TEST_F(Failures, KilledWhileSaving) {
  const Lines lines = {"checkpoint.every=1", "checkpoint.keep=2", "run.steps=60", "grid.dp=2"};
  const std::filesystem::path straight = folder_ / "straight", directory = folder_ / "run";
  train(straight, 2, lines);
  int64_t at = 0;
  for (int round = 0; round < 4; ++round) {
    BackgroundRun run(2, words(directory, lines), folder_ / "output");
    ASSERT_TRUE(run.wait_for_step(directory, at + 3)) << run.output();
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * round));
    for (const auto& [rank, process] : run.ranks()) ::kill(process, SIGKILL);
    EXPECT_NE(run.wait(20).exit_code, 0);
    ASSERT_FALSE(steps_in(directory).empty());
    at = steps_in(directory).front();
    expect_all_whole(directory);
  }
  train(directory, 2, lines);
  EXPECT_TRUE(file_bytes(checkpoint_path(directory, 60)) ==
              file_bytes(checkpoint_path(straight, 60)));
  EXPECT_EQ(read_metrics(directory), read_metrics(straight));
  // The newest two, and the one that the last start resumed from.
  EXPECT_EQ(steps_in(straight), (std::vector<int64_t>{60, 59}));
  EXPECT_EQ(steps_in(directory), (std::vector<int64_t>{60, 59, at}));
  for (const auto& [name, bytes] : snapshot(directory / "checkpoints"))
    EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
}

// One huge weight, in one piece of a split tensor or on the last stage only: all ranks skip the
// update alike, and stop when it repeats. What was saved before is finite and stays.
TEST_F(Failures, GradientsThatAreNotFinite) {
  const std::string weights = (folder_ / "huge.h5").string();
  make_weights(folder_.path(), weights, "--first=layers.2.mlp.up.weight=3e38");
  struct Case {
    int ranks;
    Lines lines;
  };
  const std::vector<Case> cases = {{2, {"grid.tp=2"}},
                                   {2, {"grid.pp=2", "optimizer.clip=0"}},
                                   {2, {"grid.dp=2", "precision.compute=bf16"}},
                                   {1, {"precision.compute=bf16", "optimizer.clip=0"}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.lines.front());
    const std::filesystem::path directory = folder_ / "run";
    std::filesystem::remove_all(directory);
    Lines lines = c.lines;
    lines.insert(lines.end(), {"checkpoint.load=" + weights, "checkpoint.load_optimizer=false",
                               "checkpoint.every=1", "fault.skip_limit=3", "run.steps=9"});
    const ProgramResult result = train(directory, c.ranks, lines, 70);
    expect_text(result, "3 steps in a row had a gradient that is not finite");
    expect_text(result, "the last checkpoint is of step 2");
    EXPECT_LT(result.seconds, 10);
    EXPECT_EQ(steps_in(directory), (std::vector<int64_t>{2, 1}));
    expect_all_whole(directory);
    EXPECT_EQ(read_tensors(checkpoint_path(directory, 2), "master/"),
              read_tensors(checkpoint_path(directory, 1), "master/"));
    const std::vector<MetricsLine> metrics = read_metrics(directory);
    ASSERT_EQ(metrics.size(), 3u);
    EXPECT_FALSE(std::isfinite(metrics[2].grad_norm) && std::isfinite(metrics[2].loss));
    EXPECT_EQ(metrics[2].learning_rate, metrics[0].learning_rate);  // skipped steps do not count
  }
}

}  // namespace
}  // namespace trireme::test
