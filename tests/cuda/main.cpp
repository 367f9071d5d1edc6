// The main of tests of the CUDA twin alone. Without a GPU it says so and returns 77, which ctest
// shows as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "trireme/device/device.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const trireme::Device device({});
    std::printf("%s\n", device.description().c_str());
  } catch (const trireme::Error& error) {
    std::printf("SKIPPED: %s\n", error.what());
    return 77;
  }
  return RUN_ALL_TESTS();
}
