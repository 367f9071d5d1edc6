// What is warned of when a job starts: binding, /dev/shm, locked memory, variables.
#include <gtest/gtest.h>

#include "trireme/train/host_facts.hpp"

namespace trireme::test {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;

std::vector<PlacedFacts> ranks_of(int ranks, int per_node) {
  std::vector<PlacedFacts> all;
  for (int rank = 0; rank < ranks; ++rank) {
    HostFacts facts;
    facts.processors = std::to_string(rank % per_node);
    facts.shared_memory_bytes = 64 * kGibibyte;
    facts.locked_memory_bytes = -1;
    all.push_back({rank / per_node, "host" + std::to_string(rank / per_node), facts});
  }
  return all;
}
void expect_only(const std::vector<PlacedFacts>& facts, const std::vector<std::string>& parts) {
  const std::vector<std::string> lines = host_warnings(facts, true);
  ASSERT_EQ(lines.size(), 1u) << (lines.empty() ? "" : lines.back());
  for (const std::string& part : parts)
    EXPECT_NE(lines[0].find(part), std::string::npos) << part << "\n" << lines[0];
}

TEST(HostFacts, OfThisProcessTravelAsText) {
  HostFacts facts = host_facts(3);
  EXPECT_GT(facts.processor_count, 0);
  EXPECT_EQ(facts.threads, 3);
  facts.variables["NCCL_DEBUG"] = "a \"quoted\"\nline";
  const HostFacts copy = HostFacts::parse(facts.text());
  EXPECT_EQ(copy.processors, facts.processors);
  EXPECT_EQ(copy.shared_memory_bytes, facts.shared_memory_bytes);
  EXPECT_EQ(copy.locked_memory_bytes, facts.locked_memory_bytes);
  EXPECT_EQ(copy.variables, facts.variables);
}

TEST(HostFacts, RangesOfNumbers) {
  EXPECT_EQ(ranges_of(std::vector<int>{}), "");
  EXPECT_EQ(ranges_of(std::vector<int>{5}), "5");
  EXPECT_EQ(ranges_of(std::vector<int>{0, 1, 2, 5, 8, 9}), "0-2,5,8-9");
}

TEST(HostWarnings, NothingToSay) {
  EXPECT_TRUE(host_warnings(ranks_of(8, 4), true).empty());
}

// srun of SLURM 22.05 does not take --cpus-per-task from sbatch: ranks share one core.
TEST(HostWarnings, RanksThatShareACore) {
  auto facts = ranks_of(4, 4);
  for (PlacedFacts& rank : facts) rank.facts.processors = "3";
  expect_only(facts, {"ranks 0-3 on host0 run 4 threads on processor 3", "srun --cpus-per-task"});
  // One rank bound to one core that runs eight threads.
  facts = ranks_of(2, 2);
  facts[1].facts.threads = 8;
  expect_only(facts, {"rank 1 on host0 run 8 threads on processor 1", "--bind-to none"});
}

TEST(HostWarnings, LittleSharedMemory) {
  auto facts = ranks_of(6, 2);
  for (PlacedFacts& rank : facts)
    if (rank.node > 0) rank.facts.shared_memory_bytes = int64_t{64} << 20;
  expect_only(facts, {"host1 and 1 more hosts: /dev/shm has 64 MiB", "emptyDir"});
  // Alone on its host a rank does not need it.
  facts = ranks_of(2, 1);
  for (PlacedFacts& rank : facts) rank.facts.shared_memory_bytes = int64_t{64} << 20;
  EXPECT_TRUE(host_warnings(facts, true).empty());
}

TEST(HostWarnings, LockedMemoryBesideInfiniband) {
  auto facts = ranks_of(2, 1);
  facts[1].facts.locked_memory_bytes = 64 << 10;
  EXPECT_TRUE(host_warnings(facts, true).empty());
  facts[1].facts.has_infiniband = true;
  expect_only(facts, {"host1: memory that may be locked is limited to 64 KiB", "ulimit -l"});
}

TEST(HostWarnings, VariablesThatDifferDoNothingOrSlowDown) {
  auto facts = ranks_of(3, 1);
  facts[0].facts.variables["NCCL_SOCKET_IFNAME"] = "eth0";
  facts[1].facts.variables["NCCL_SOCKET_IFNAME"] = "eth0";
  expect_only(facts, {"NCCL_SOCKET_IFNAME is eth0 on rank 0 and (not set) on rank 2", "-x"});
  facts = ranks_of(2, 1);
  for (PlacedFacts& rank : facts) rank.facts.variables["NCCL_ASYNC_ERROR_HANDLING"] = "1";
  expect_only(facts, {"belongs to PyTorch", "fault.deadline"});
  facts = ranks_of(2, 1);
  for (PlacedFacts& rank : facts) rank.facts.variables["NCCL_P2P_DISABLE"] = "1";
  expect_only(facts, {"NCCL_P2P_DISABLE is for finding faults"});
}

}  // namespace
}  // namespace trireme::test
