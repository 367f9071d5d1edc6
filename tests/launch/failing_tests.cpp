// Tests that must fail, to check the main of rank tests: exit_codes.cpp picks one at a time.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/rank_test.hpp"

namespace trireme::test {

TEST(Failing, Passes) {
  EXPECT_EQ(world().sum(int64_t{1}), world().size());
}

TEST(Failing, OnRankOne) {
  EXPECT_NE(world().rank(), 1) << "told you";
}

TEST(Failing, ThrowsOnRankOne) {
  require(world().rank() != 1, ExitCode::bad_data, "thrown inside a test");
  world().barrier();
}

TEST(Failing, HangsOnRankOne) {
  if (world().rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(120));
  world().barrier();
}

}  // namespace trireme::test
