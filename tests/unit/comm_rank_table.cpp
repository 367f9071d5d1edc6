// The table of ranks, and tp groups that leave their host.
#include <gtest/gtest.h>

#include "trireme/comm/rank_table.hpp"

namespace trireme::test {
namespace {

std::vector<RankPlace> places(const std::vector<int>& nodes) {
  std::vector<RankPlace> result;
  for (const int node : nodes)
    result.push_back({"host" + std::to_string(node), node, "GPU " + std::to_string(result.size())});
  return result;
}

TEST(RankTable, OneLineARank) {
  const auto lines = rank_table({.tp = 2, .cp = 1, .dp = 1, .pp = 2}, places({0, 0, 1, 1}));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "       rank  host   device       tp      cp      dp      pp");
  EXPECT_EQ(lines[2], "          1  host0  GPU 1         1       0       0       0");
  EXPECT_EQ(lines[4], "          3  host1  GPU 3         1       0       0       1");
}

TEST(RankTable, LargeJobsGetALineAHost) {
  std::vector<int> nodes;
  for (int rank = 0; rank < 72; ++rank) nodes.push_back(rank / 8);
  const auto lines = rank_table({.tp = 8, .cp = 1, .dp = 3, .pp = 3}, places(nodes));
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[9], "      64-71  host8      0-7       0       2       2");
}

TEST(TpSplit, GroupsStayInsideAHost) {
  const GridShape shape{.tp = 2, .cp = 1, .dp = 2, .pp = 1};
  EXPECT_EQ(tp_split_fault(shape, places({0, 0, 1, 1})), "");
  EXPECT_EQ(tp_split_fault(shape, places({0, 0, 0, 0})), "");
  // Round robin over hosts, the classic wrong placement.
  const std::string fault = tp_split_fault(shape, places({0, 1, 0, 1}));
  EXPECT_NE(fault.find("rank 0 on host0, rank 1 on host1"), std::string::npos) << fault;
  EXPECT_NE(fault.find("grid.tp_across_nodes=true"), std::string::npos) << fault;
  // Two hosts of one name are two hosts.
  auto twins = places({0, 0, 1, 1});
  for (RankPlace& place : twins) place.host = "node";
  EXPECT_NE(tp_split_fault({.tp = 4, .cp = 1, .dp = 1, .pp = 1}, twins), "");
}

}  // namespace
}  // namespace trireme::test
