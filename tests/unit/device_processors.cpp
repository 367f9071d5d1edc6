// Threads of a rank and memory of the host.
#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

#include "device/cpu/processors.hpp"
#include "trireme/device/device.hpp"

namespace trireme {
namespace {

// Removes a variable while it lives.
class WithoutVariable {
 public:
  explicit WithoutVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) kept_ = value;
    unsetenv(name);
  }
  ~WithoutVariable() {
    if (!kept_.empty()) setenv(name_, kept_.c_str(), 1);
  }

 private:
  const char* name_;
  std::string kept_;
};

TEST(Processors, ThreadsAreTheCoresOfTheRank) {
  const WithoutVariable variable("OMP_NUM_THREADS");
  const int cores = usable_cores();
  EXPECT_GE(cores, 1);
  EXPECT_LE(cores, sysconf(_SC_NPROCESSORS_ONLN));
  const Device device{DeviceOptions{}};
  EXPECT_EQ(omp_get_max_threads(), cores);
  EXPECT_EQ(device.description().rfind(std::to_string(cores) + " thread", 0), 0u);
}

TEST(Processors, MoreRanksThanCoresStillHaveAThread) {
  const WithoutVariable variable("OMP_NUM_THREADS");
  const Device device{DeviceOptions{.node_rank = 3, .node_ranks = 1000}};
  EXPECT_GE(omp_get_max_threads(), 1);
  EXPECT_EQ(ranks_sharing_cores(1), 1);
}

TEST(Processors, AMaskOfOneCoreIsOneThread) {
  const WithoutVariable variable("OMP_NUM_THREADS");
  cpu_set_t kept;
  ASSERT_EQ(sched_getaffinity(0, sizeof(kept), &kept), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &kept)) continue;
    CPU_SET(i, &one);
    break;
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  const Device device{DeviceOptions{.node_rank = 0, .node_ranks = 2}};
  EXPECT_EQ(omp_get_max_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(kept), &kept), 0);
}

TEST(Processors, TheCallersChoiceWins) {
  const Device device{DeviceOptions{.threads = 3}};
  EXPECT_EQ(omp_get_max_threads(), 3);
}

TEST(Processors, TheEnvironmentWinsOverTheCores) {
  omp_set_num_threads(5);  // what OpenMP reads from the variable when the process starts
  const char* kept = std::getenv("OMP_NUM_THREADS");
  const std::string value = kept == nullptr ? "" : kept;
  setenv("OMP_NUM_THREADS", "5", 1);
  const Device device{DeviceOptions{}};
  EXPECT_EQ(omp_get_max_threads(), 5);
  kept == nullptr ? unsetenv("OMP_NUM_THREADS") : setenv("OMP_NUM_THREADS", value.c_str(), 1);
}

TEST(Processors, MemoryIsThatOfTheHost) {
  const Device device{DeviceOptions{.threads = 1}};
  EXPECT_GT(device.total_bytes(), size_t{64} << 20);
  EXPECT_GT(device.free_bytes(), 0u);
  EXPECT_LE(device.free_bytes(), device.total_bytes());
  EXPECT_EQ(device.peak_flops(DType::f32), 0);
  EXPECT_EQ(backend_name(), "cpu");
  EXPECT_TRUE(device_memory_is_host());
}

}  // namespace
}  // namespace trireme
