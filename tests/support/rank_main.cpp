// The main of tests that run on several ranks.
//
// Rank 0 prints; a failed assertion on another rank is printed at once with its rank. When a test
// has ended everywhere, the ranks that failed are named. A test that takes longer than a minute is
// named with its rank by a watchdog, which ends the job with 76; TRIREME_TEST_SECONDS changes the
// limit. If any test failed on any rank, every rank returns 1.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "support/rank_test.hpp"

namespace trireme::test {

namespace {

// Set by main before the first test; tests are free functions, so there is no other way to reach
// it.
struct Surroundings {
  MpiSession* session = nullptr;
  Device* device = nullptr;
  Communicator* world = nullptr;
};
Surroundings& surroundings() {
  static Surroundings all;
  return all;
}

// Ends the process when what it watches takes too long. Never calls MPI.
class Watchdog {
 public:
  Watchdog(int rank, std::chrono::seconds limit)
      : rank_(rank), limit_(limit), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void begin(std::string what) {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    end_ = std::chrono::steady_clock::now() + limit_;
    changed_.notify_one();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (changed_.wait_until(lock, end_) == std::cv_status::no_timeout) continue;
      if (std::chrono::steady_clock::now() < end_) continue;
      fmt::print(stderr, "[rank {}] watchdog: {} took longer than {} s\n", rank_, what_,
                 limit_.count());
      std::fflush(nullptr);
      std::_Exit(static_cast<int>(ExitCode::peer));
    }
  }

  int rank_;
  std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + limit_;
  std::string what_ = "start";
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

class RankListener : public testing::EmptyTestEventListener {
 public:
  RankListener(const Communicator& world, Watchdog& watchdog)
      : world_(world), watchdog_(watchdog) {}
  bool any_failed() const { return any_failed_; }

  void OnTestStart(const testing::TestInfo& test) override { watchdog_.begin(name_of_test(test)); }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (world_.rank() == 0 || !result.failed()) return;
    fmt::print(stderr, "[rank {}] {}:{}: failure\n{}\n", world_.rank(),
               result.file_name() == nullptr ? "unknown" : result.file_name(), result.line_number(),
               result.message());
  }

  // All ranks get here after each test, whatever their assertions said.
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::vector<std::string> verdicts =
        world_.gather_all(test.result()->Failed() ? "failed" : "");
    std::string ranks;
    for (size_t r = 0; r < verdicts.size(); ++r)
      if (!verdicts[r].empty()) ranks += fmt::format(" {}", r);
    watchdog_.begin("after " + name_of_test(test));
    if (ranks.empty()) return;
    any_failed_ = true;
    if (world_.rank() == 0)
      fmt::print(stderr, "[ RANKS    ] {} failed on ranks{}\n", name_of_test(test), ranks);
  }

 private:
  static std::string name_of_test(const testing::TestInfo& test) {
    return fmt::format("{}.{}", test.test_suite_name(), test.name());
  }
  const Communicator& world_;
  Watchdog& watchdog_;
  bool any_failed_ = false;
};

std::chrono::seconds time_limit() {
  const char* text = std::getenv("TRIREME_TEST_SECONDS");
  return std::chrono::seconds(text == nullptr ? 60 : std::atoi(text));
}

int run_tests(MpiSession& session) {
  Device device({.node_rank = session.node_rank(),
                 .node_ranks = session.node_ranks(),
                 .ranks = session.world().size()});
  Communicator world = session.world().split(0, session.world().rank(), "test");
  world.connect(device);
  surroundings() = {&session, &device, &world};

  Watchdog watchdog(world.rank(), time_limit());
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  auto owned = std::make_unique<RankListener>(session.world(), watchdog);
  RankListener& listener = *owned;
  listeners.Append(owned.release());
  const int verdict = RUN_ALL_TESTS();
  const bool failed = listener.any_failed() || verdict != 0;
  delete listeners.Release(&listener);
  return failed ? 1 : 0;
}

}  // namespace

MpiSession& session() {
  return *surroundings().session;
}
Device& device() {
  return *surroundings().device;
}
const Communicator& world() {
  return *surroundings().world;
}

}  // namespace trireme::test

int main(int argc, char** argv) {
  trireme::MpiSession session(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  // An exception leaves the test and the program, so that the other ranks do not wait for this one.
  testing::GTEST_FLAG(catch_exceptions) = false;
  return trireme::run_guarded(session, [&] { return trireme::test::run_tests(session); });
}
