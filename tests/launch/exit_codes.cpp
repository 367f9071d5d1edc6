// What mpirun returns, and what is printed, for every way in which a job can fail.
//
// The programs are given in the environment: TRIREME_GUARDED_PROGRAM (guarded_program.cpp) and
// TRIREME_FAILING_TESTS (failing_tests.cpp).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Result {
  int code = -1;
  double seconds = 0;
  std::string output;  // both streams

  int count(const std::string& text) const {
    int found = 0;
    for (size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1))
      ++found;
    return found;
  }
};

// `environment` as for env(1): "NAME=value ".
Result run(const char* program_variable, int ranks, const std::string& argument,
           const std::string& environment = "") {
  const char* program = std::getenv(program_variable);
  if (program == nullptr) {
    ADD_FAILURE() << program_variable << " is not set: run this test through ctest";
    return {};
  }
  const std::string command = "env " + environment +
                              " timeout -k 2 60 mpirun --oversubscribe --bind-to none -n " +
                              std::to_string(ranks) + " '" + program + "' " + argument + " 2>&1";
  const auto start = std::chrono::steady_clock::now();
  Result result;
  std::FILE* pipe = popen(command.c_str(), "r");
  char piece[4096];
  while (const size_t got = std::fread(piece, 1, sizeof(piece), pipe))
    result.output.append(piece, got);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Result run_guarded_program(int ranks, const std::string& name) {
  return run("TRIREME_GUARDED_PROGRAM", ranks, name);
}

constexpr const char* kMark = "trireme: error";

struct Case {
  const char* name;
  int ranks;
  int code;
  const char* text;  // the one message
  int messages = 1;  // times that it may be printed
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name << " on " << c.ranks;
}

class ExitCodes : public testing::TestWithParam<Case> {};

}  // namespace

// A second or so for the failure itself; the rest is the start of the job on a busy machine.
TEST_P(ExitCodes, OneMessageAndTheRightCode) {
  const Case& c = GetParam();
  const Result result = run_guarded_program(c.ranks, c.name);
  EXPECT_EQ(result.code, c.code) << result.output;
  EXPECT_EQ(result.count(kMark), c.messages) << result.output;
  EXPECT_EQ(result.count(c.text), c.messages == 0 ? 0 : c.messages) << result.output;
  EXPECT_LT(result.seconds, 15) << result.output;
}

INSTANTIATE_TEST_SUITE_P(
    , ExitCodes,
    testing::Values(
        Case{"success", 3, 0, kMark, 0}, Case{"stopped", 3, 75, kMark, 0},
        Case{"stopped", 1, 75, kMark, 0},
        Case{"bad_deck_everywhere", 1, 78, "error: tp 3 does not divide 4 heads (exit code 78)"},
        Case{"bad_deck_everywhere", 4, 78, "error: tp 3 does not divide 4 heads (exit code 78)"},
        Case{"bad_deck_late", 4, 78, "error: tp 3 does not divide 4 heads (exit code 78)"},
        Case{"lone_while_others_wait", 3, 65, "token 70000 in data.bin (exit code 65)"},
        Case{"lone_while_others_wait", 2, 65, "error on rank 1 ("},
        Case{"lone_while_others_compute", 3, 66, "error on rank 1 ("},
        Case{"lone_after_others_left", 3, 74, "error on rank 1 ("},
        Case{"some", 3, 65, "error on rank 1 ("},
        Case{"cause_and_victim", 3, 65, "error on rank 1 ("},
        Case{"different_everywhere", 3, 66, "other ranks report other errors: no file data.0"},
        Case{"agreed", 3, 74, "error on rank 1 ("},
        Case{"agreed_in_part", 3, 74, "error on rank 1 ("},
        Case{"own_check", 3, 70, "replicas differ [guarded_program.cpp:"},
        Case{"no_memory", 3, 70, "out of host memory"},
        Case{"foreign_exception", 3, 70, "unexpected failure: map::at"},
        Case{"unknown_exception", 2, 70, "unexpected failure of unknown type"},
        Case{"pending_dropped", 3, 65, "token 70000 in data.bin"},
        Case{"pending_of_others", 3, 65, "token 70000 in data.bin"},
        Case{"pending_dropped_everywhere", 3, 70, "the loss is not finite"},
        Case{"returns_with_pending", 3, 70, "returned while communication was pending"},
        Case{"mpi_reports", 3, 76, "exchange on group failed: MPI_ERR_TRUNCATE"}),
    [](const auto& test) {
      return std::string(test.param.name) + "_" + std::to_string(test.param.ranks) + "_" +
             std::to_string(test.index);
    });

TEST(RankMain, PassesAndNamesFailingRanks) {
  const Result good = run("TRIREME_FAILING_TESTS", 3, "--gtest_filter=*.Passes");
  EXPECT_EQ(good.code, 0) << good.output;
  EXPECT_EQ(good.count("1 test from 1 test suite ran"), 1) << good.output;

  const Result bad = run("TRIREME_FAILING_TESTS", 3, "--gtest_filter=*.OnRankOne:*.Passes");
  EXPECT_EQ(bad.code, 1) << bad.output;
  EXPECT_EQ(bad.count("Failing.OnRankOne failed on ranks 1\n"), 1) << bad.output;
  EXPECT_EQ(bad.count("told you"), 1) << bad.output;
}

TEST(RankMain, AnExceptionOnOneRankEndsTheJob) {
  const Result result = run("TRIREME_FAILING_TESTS", 3, "--gtest_filter=*.ThrowsOnRankOne");
  EXPECT_EQ(result.code, 65) << result.output;
  EXPECT_EQ(result.count("error on rank 1 ("), 1) << result.output;
}

TEST(RankMain, WatchdogNamesTestAndRank) {
  const Result result =
      run("TRIREME_FAILING_TESTS", 2, "--gtest_filter=*.HangsOnRankOne", "TRIREME_TEST_SECONDS=3");
  EXPECT_EQ(result.code, 76) << result.output;
  EXPECT_GE(result.count("watchdog: Failing.HangsOnRankOne took longer than 3 s"), 1)
      << result.output;
}
