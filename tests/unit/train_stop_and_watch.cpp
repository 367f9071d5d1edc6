// Stop requests, phases and the watchdog, without a run.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <thread>

#include "support/checkpoint_bytes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/train/phases.hpp"
#include "trireme/train/stop_request.hpp"
#include "trireme/train/watchdog.hpp"

namespace trireme::test {
namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(StopRequest, RemembersTheStrongestSignal) {
  const StopRequest stop;
  EXPECT_EQ(stop.requested(), Stop::none);
  ::raise(SIGUSR1);
  EXPECT_EQ(stop.requested(), Stop::asked);
  ::raise(SIGUSR1);
  EXPECT_EQ(stop.requested(), Stop::asked);
  ::raise(SIGTERM);
  EXPECT_EQ(stop.requested(), Stop::urgent);
  ::raise(SIGUSR1);
  ::raise(SIGINT);
  EXPECT_EQ(stop.requested(), Stop::urgent);
}

// SIGUSR2 asks for a save; a save answers it, and nothing stronger.
TEST(StopRequest, ASaveIsAnsweredByASave) {
  const StopRequest stop;
  ::raise(SIGUSR2);
  EXPECT_EQ(stop.requested(), Stop::save);
  stop.saved();
  EXPECT_EQ(stop.requested(), Stop::none);
  ::raise(SIGUSR1);
  ::raise(SIGUSR2);
  EXPECT_EQ(stop.requested(), Stop::asked);
  stop.saved();
  EXPECT_EQ(stop.requested(), Stop::asked);
}

TEST(StopRequest, GivesTheSignalsBack) {
  {
    const StopRequest first;
    ::raise(SIGINT);
  }
  const StopRequest second;
  EXPECT_EQ(second.requested(), Stop::none);
}

TEST(StopRequestDeathTest, WithoutOneASignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        { const StopRequest stop; }
        ::raise(SIGUSR1);
      },
      ::testing::KilledBySignal(SIGUSR1), "");
}

TEST(Phases, AddUpByName) {
  Phases phases;
  for (int i = 0; i < 2; ++i) {
    const auto outer = phases.enter("outer");
    const auto inner = phases.enter("inner");
    sleep_for(0.01);
  }
  ASSERT_EQ(phases.lines().size(), 2u);
  EXPECT_EQ(phases.lines()[0].name, "outer");
  EXPECT_EQ(phases.lines()[0].count, 2);
  EXPECT_EQ(phases.lines()[1].count, 2);
  EXPECT_GE(phases.seconds("inner"), 0.02);
  EXPECT_GE(phases.seconds("outer"), phases.seconds("inner"));
  EXPECT_EQ(phases.seconds("never"), 0);
  phases.reset();
  EXPECT_EQ(phases.seconds("outer"), 0);
  EXPECT_EQ(phases.lines()[0].count, 0);
}

Watchdog::Options options_of(const ScratchDirectory& folder, int rank, int ranks,
                             double deadline = 0) {
  return {folder.path() / "watchdog", rank, ranks, deadline};
}

// Several ranks in one process, each with its record.
TEST(Watchdog, ReportNamesWhoIsBehindAndWhere) {
  const ScratchDirectory folder;
  std::vector<std::unique_ptr<Watchdog>> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(std::make_unique<Watchdog>(options_of(folder, rank, 3)));
  for (int rank = 0; rank < 3; ++rank) {
    ranks[static_cast<size_t>(rank)]->begin(rank == 1 ? 41 : 42);
    ranks[static_cast<size_t>(rank)]->phase("forward and backward");
  }
  ranks[2]->phase("optimizer");
  const std::string report = ranks[2]->report();
  const size_t first = report.find("rank 1 on "), second = report.find("rank 0 on ");
  ASSERT_NE(first, std::string::npos) << report;
  EXPECT_LT(first, second);
  EXPECT_NE(report.find("step 41, forward and backward  <- furthest behind"), std::string::npos)
      << report;
  EXPECT_LT(second, report.find("rank 2 on ")) << report;
  EXPECT_NE(ranks[0]->report(1).find("and 2 more"), std::string::npos);
  // Nobody is behind where all are alike.
  for (const auto& rank : ranks) rank->begin(43);
  ranks[0]->phase("optimizer");
  ranks[1]->phase("optimizer");
  EXPECT_EQ(ranks[0]->report().find("furthest"), std::string::npos) << ranks[0]->report();
  ranks.clear();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "watchdog"));
}

TEST(Watchdog, RestingAndFastStepsAreLeftAlone) {
  const ScratchDirectory folder;
  Watchdog watchdog(options_of(folder, 0, 1, 1.0));
  for (int64_t step = 1; step <= 12; ++step) {
    watchdog.begin(step);
    sleep_for(0.1);
  }
  watchdog.rest();
  sleep_for(1.3);
}

TEST(WatchdogDeathTest, EndsAHangingProcessWithItsPhase) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const ScratchDirectory folder;
        Watchdog watchdog(options_of(folder, 0, 1, 0.2));
        watchdog.begin(7);
        watchdog.phase("optimizer");
        sleep_for(30);
      },
      ::testing::ExitedWithCode(76),
      "step 7 took longer than fault.deadline = 0.2 s, in phase 'optimizer'");
}

TEST(Watchdog, ADirectoryThatCannotBeMadeIsAnError) {
  try {
    const Watchdog watchdog({"/proc/nothing/watchdog", 0, 1, 0});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::io);
    EXPECT_NE(std::string(e.what()).find("/proc/nothing/watchdog/rank_00000"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::test
