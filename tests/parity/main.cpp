// Runs every parity case on both twins and compares: the CPU is the reference. Without a GPU the
// program says so and returns 77, which ctest shows as skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "parity/case.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cpu {
std::shared_ptr<void> open_cases(parity::CaseList& list);
}
namespace trireme::cuda {
std::shared_ptr<void> open_cases(parity::CaseList& list);
}

namespace trireme::parity {
namespace {

constexpr int kSkipped = 77;
constexpr double kElement = 20;  // times the tolerance: for a single element

// The same bits count as equal, infinities included; NaN never does.
void compare(const Output& expected, const Output& got) {
  ASSERT_EQ(expected.name, got.name);
  ASSERT_EQ(expected.values.size(), got.values.size()) << expected.name;
  double squares = 0, difference = 0;
  for (float value : expected.values)
    if (std::isfinite(value)) squares += double{value} * value;
  const double typical =
      std::sqrt(squares / std::max(1.0, static_cast<double>(expected.values.size())));
  int reported = 0;
  for (size_t i = 0; i < expected.values.size() && reported < 3; ++i) {
    const double e = expected.values[i], g = got.values[i];
    if (e == g) continue;
    const double error = std::abs(e - g);
    difference += error * error;
    if (error <= kElement * expected.tolerance * (typical + std::abs(e))) continue;
    ++reported;
    ADD_FAILURE() << expected.name << "[" << i << "]: cpu " << e << ", cuda " << g;
  }
  EXPECT_LE(std::sqrt(difference), expected.tolerance * std::sqrt(squares)) << expected.name;
}

class ParityTest : public ::testing::Test {
 public:
  ParityTest(Case reference, Case device)
      : reference_(std::move(reference)), device_(std::move(device)) {}

 private:
  void TestBody() override {
    const std::vector<Output> expected = reference_.run();
    const std::vector<Output> got = device_.run();
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < expected.size(); ++i) compare(expected[i], got[i]);
  }
  Case reference_, device_;
};

void add_tests(const CaseList& reference, const CaseList& device) {
  require(reference.size() == device.size(), ExitCode::internal,
          "{} cases of one twin, {} of the other", reference.size(), device.size());
  for (size_t i = 0; i < reference.size(); ++i) {
    require(reference[i].name == device[i].name, ExitCode::internal, "case {} and case {}",
            reference[i].name, device[i].name);
    ::testing::RegisterTest("parity", reference[i].name.c_str(), nullptr, nullptr, __FILE__,
                            __LINE__, [=, a = reference[i], b = device[i]]() -> ::testing::Test* {
                              return new ParityTest(a, b);
                            });
  }
}

}  // namespace
}  // namespace trireme::parity

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  trireme::parity::CaseList reference, device;
  std::shared_ptr<void> cpu, cuda;
  try {
    cuda = trireme::cuda::open_cases(device);
  } catch (const trireme::Error& error) {
    std::printf("SKIPPED: %s\n", error.what());
    return trireme::parity::kSkipped;
  }
  cpu = trireme::cpu::open_cases(reference);
  trireme::parity::add_tests(reference, device);
  return RUN_ALL_TESTS();
}
