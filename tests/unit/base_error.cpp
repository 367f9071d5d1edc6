// Error texts, places and codes; checked size arithmetic; the log.
#include "trireme/base/error.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <string>

#include "trireme/base/checked.hpp"
#include "trireme/base/log.hpp"

namespace trireme {
namespace {

TEST(Error, CarriesTextCodeAndPlace) {
  const unsigned line = __LINE__ + 2;
  try {
    fail(ExitCode::no_input, "cannot read {}: {} bytes", "tokens.bin", 12);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot read tokens.bin: 12 bytes");
    EXPECT_EQ(error.code(), ExitCode::no_input);
    EXPECT_EQ(static_cast<int>(error.code()), 66);
    EXPECT_EQ(error.where().line(), line);
    EXPECT_NE(std::strstr(error.where().file_name(), "base_error.cpp"), nullptr);
  }
}

TEST(Error, RequireThrowsOnlyWhenFalse) {
  EXPECT_NO_THROW(require(true, ExitCode::internal, "never {}", 1));
  try {
    require(false, ExitCode::bad_config, "tp {} does not divide heads {}", 3, 16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "tp 3 does not divide heads 16");
    EXPECT_EQ(static_cast<int>(error.code()), 78);
    EXPECT_NE(std::strstr(error.where().file_name(), "base_error.cpp"), nullptr);
  }
}

TEST(Checked, ExactUpToTheLimit) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(checked_mul(most, 1), most);
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(checked_mul(0, most), 0);
  EXPECT_EQ(checked_add(most - 5, 5), most);
}

TEST(Checked, OverflowIsAnErrorOfTheInput) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  try {
    (void)checked_mul(int64_t{1} << 32, int64_t{1} << 31);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_data);
    EXPECT_STREQ(error.what(), "size 4294967296 x 2147483648 does not fit in 64 bits");
  }
  EXPECT_THROW(checked_mul(-most, 2), Error);
  EXPECT_THROW(checked_add(most, 1), Error);
}

TEST(Checked, Rounding) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(1, 4), 1);
  EXPECT_EQ(ceil_div(8, 4), 2);
  EXPECT_EQ(ceil_div(9, 4), 3);
  EXPECT_EQ(round_up(61, 4), 64);
  EXPECT_EQ(round_up(64, 4), 64);
}

// What a log of this rank and level writes.
std::string logged(int rank, LogLevel level) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) return "no temporary file";
  const Log log(rank, level, file);
  log.error("disk {} full", 3);
  log.warning("slow");
  log.info("step {}", 12);
  log.write(LogLevel::debug, "detail");
  std::string text(200, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Log, RankZeroPrintsUpToItsLevel) {
  EXPECT_EQ(logged(0, LogLevel::info), "[rank 0] error: disk 3 full\nwarning: slow\nstep 12\n");
  EXPECT_EQ(logged(0, LogLevel::error), "[rank 0] error: disk 3 full\n");
  EXPECT_EQ(logged(0, LogLevel::debug),
            "[rank 0] error: disk 3 full\nwarning: slow\nstep 12\ndetail\n");
}

TEST(Log, OtherRanksPrintErrorsOnly) {
  EXPECT_EQ(logged(5, LogLevel::debug), "[rank 5] error: disk 3 full\n");
}

}  // namespace
}  // namespace trireme
