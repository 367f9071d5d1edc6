// The rule that ties ranks to visible GPUs, in both regimes.
#include <gtest/gtest.h>

#include "trireme/device/visible_devices.hpp"

namespace trireme::test {
namespace {

TEST(Visibility, AsManyDevicesAsRanksOrASingleOne) {
  EXPECT_EQ(visibility_fault(8, 8, false), "");
  EXPECT_EQ(visibility_fault(8, 3, false), "");
  EXPECT_EQ(visibility_fault(1, 1, false), "");
  EXPECT_EQ(visibility_fault(1, 4, false), "");  // a laptop's only GPU
  EXPECT_EQ(visibility_fault(0, 4, false), "");  // the CPU, or said when the device is opened
}

TEST(Visibility, AnythingElseIsExplained) {
  const std::string fault = visibility_fault(2, 8, false);
  EXPECT_NE(fault.find("8 ranks of one host see the same 2 GPUs"), std::string::npos) << fault;
  EXPECT_NE(fault.find("CUDA_VISIBLE_DEVICES="), std::string::npos) << fault;
  EXPECT_NE(fault.find("--gpu-bind=none"), std::string::npos) << fault;
  EXPECT_EQ(visibility_fault(2, 8, true), "");
}

TEST(Visibility, DevicesHiddenFromNeighboursAreWarnedOf) {
  using Ranks = std::vector<SeenDevices>;
  const auto warning = [](const Ranks& ranks) { return hidden_devices(ranks); };
  EXPECT_NE(warning({{0, {"GPU-a"}}, {0, {"GPU-b"}}}).find("--gpu-bind=none"), std::string::npos);
  EXPECT_NE(warning({{0, {"GPU-a"}}, {1, {"GPU-c"}}, {1, {"GPU-d"}}}), "");
  EXPECT_EQ(warning({{0, {"GPU-a"}}, {1, {"GPU-b"}}}), "");  // one on each host
  EXPECT_EQ(warning({{0, {"GPU-a"}}, {0, {"GPU-a"}}, {1, {"GPU-b"}}, {1, {"GPU-b"}}}), "");
  EXPECT_EQ(warning({{0, {"GPU-a", "GPU-b"}}, {0, {"GPU-a", "GPU-b"}}}), "");
  EXPECT_EQ(warning({{0, {}}, {0, {}}}), "");  // no GPUs
}

}  // namespace
}  // namespace trireme::test
