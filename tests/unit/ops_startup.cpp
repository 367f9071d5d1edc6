// The choice of OpenBLAS kernels, in words and in a process of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "device/cpu/processors.hpp"
#include "ops/cpu/core_choice.hpp"
#include "trireme/ops/startup.hpp"

namespace trireme {
namespace {

TEST(Startup, OldKernelsOnNewProcessorsArePutRight) {
  EXPECT_EQ(better_core("Prescott", "AVX-512"), "SKYLAKEX");
  EXPECT_EQ(better_core("Nehalem", "AVX2"), "HASWELL");
  EXPECT_EQ(better_core("SandyBridge", "AVX-512"), "SKYLAKEX");
}

TEST(Startup, OtherChoicesAreLeftAlone) {
  EXPECT_EQ(better_core("SkylakeX", "AVX-512"), "");
  EXPECT_EQ(better_core("Haswell", "AVX-512"), "");
  EXPECT_EQ(better_core("Zen", "AVX2"), "");
  EXPECT_EQ(better_core("Prescott", ""), "");
  EXPECT_EQ(better_core("neoversen1", ""), "");
}

// The test starts itself without the variable; there, the process prepares itself as a program
// does.
TEST(Startup, TheProcessStartsAgainWithTheRightKernels) {
  char program[] = "unit_ops";
  char filter[] = "--gtest_filter=Startup.TheProcessStartsAgainWithTheRightKernels";
  char* arguments[] = {program, filter, nullptr};
  if (std::getenv("TRIREME_STARTUP_CHILD") != nullptr) {
    prepare_process(2, arguments);
    const std::string text = math_description();
    const std::string core = text.substr(text.find(", ") + 2);
    EXPECT_EQ(better_core(core.substr(0, core.find(' ')), vector_extension()), "") << text;
    return;
  }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("TRIREME_RESTARTED");
    setenv("TRIREME_STARTUP_CHILD", "1", 1);
    execv("/proc/self/exe", arguments);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace trireme
