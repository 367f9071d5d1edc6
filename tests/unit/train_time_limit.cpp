// The end of a job's time, from old and new versions of SLURM and from the batch script.
#include <gtest/gtest.h>

#include <ctime>
#include <map>

#include "trireme/train/time_limit.hpp"

namespace trireme::test {
namespace {

TEST(SlurmSeconds, EveryFormOfTimeLeft) {
  EXPECT_EQ(slurm_seconds("0:59\n"), 59);
  EXPECT_EQ(slurm_seconds("12:05"), 725);
  EXPECT_EQ(slurm_seconds(" 1:02:03 "), 3723);
  EXPECT_EQ(slurm_seconds("2-00:00:01"), 172801);
  EXPECT_EQ(slurm_seconds("45"), 45);
  EXPECT_EQ(slurm_seconds("10-23:59:59"), 950399);
}

TEST(SlurmSeconds, AnythingElseIsUnknown) {
  for (const char* text : {"", "UNLIMITED", "NOT_SET", "INVALID", "1:2:3:4", "1-2", "-5", "1:-2",
                           "a:b", "1-2-3:4:5", "12:05 extra", ":", "1:"})
    EXPECT_FALSE(slurm_seconds(text).has_value()) << text;
}

struct Job {
  std::map<std::string, std::string> variables;
  std::string squeue;
  int asked = 0;
  TimeLimit limit() {
    return {[this](const char* name) -> const char* {
              const auto found = variables.find(name);
              return found == variables.end() ? nullptr : found->second.c_str();
            },
            [this](const std::string& command) {
              ++asked;
              EXPECT_NE(command.find("squeue -h -j 41 -o %L"), std::string::npos) << command;
              return squeue;
            }};
  }
};

TEST(TimeLimit, TheBatchScriptGoesFirst) {
  Job job{{{"TRIREME_DEADLINE", "1700000000"}, {"SLURM_JOB_END_TIME", "5"}}, ""};
  const TimeLimit limit = job.limit();
  EXPECT_EQ(limit.end(), 1700000000);
  EXPECT_EQ(limit.source(), "TRIREME_DEADLINE");
  EXPECT_EQ(job.asked, 0);
}

TEST(TimeLimit, NewerSlurmSaysItInAVariable) {
  Job job{{{"SLURM_JOB_END_TIME", "1700000001"}, {"SLURM_JOB_ID", "41"}}, "1:00"};
  EXPECT_EQ(job.limit().end(), 1700000001);
  EXPECT_EQ(job.asked, 0);
}

TEST(TimeLimit, OlderSlurmIsAskedAndAskedAgain) {
  Job job{{{"SLURM_JOB_ID", "41"}}, "1:00\n"};
  TimeLimit limit = job.limit();
  ASSERT_TRUE(limit.end().has_value());
  EXPECT_NEAR(static_cast<double>(*limit.end()), static_cast<double>(std::time(nullptr) + 60), 2);
  EXPECT_EQ(limit.source(), "squeue");
  job.squeue = "2:00:00";  // raised
  limit.ask_again();
  EXPECT_NEAR(static_cast<double>(*limit.end()), static_cast<double>(std::time(nullptr) + 7200), 2);
  const auto before = limit.end();
  job.squeue = "";  // no answer
  limit.ask_again();
  EXPECT_EQ(limit.end(), before);
}

TEST(TimeLimit, NoneIsKnown) {
  Job unlimited{{{"SLURM_JOB_ID", "41"}}, "UNLIMITED"};
  EXPECT_FALSE(unlimited.limit().end().has_value());
  Job odd{{{"SLURM_JOB_ID", "41; rm"}, {"TRIREME_DEADLINE", "soon"}}, "1:00"};
  EXPECT_FALSE(odd.limit().end().has_value());
  EXPECT_EQ(odd.asked, 0);
  Job laptop;
  EXPECT_FALSE(laptop.limit().end().has_value());
}

}  // namespace
}  // namespace trireme::test
