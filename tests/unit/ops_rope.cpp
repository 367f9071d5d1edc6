// Rotary embedding: values against f64, large positions, inverse, strides.
#include <gtest/gtest.h>

#include "support/ops_data.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::scaled_error;
using test::TestMatrix;

class Ropes : public testing::Test {
 protected:
  // Frequencies of head size `size`, base 10000.
  void set_frequencies(int64_t size) {
    frequencies_.clear();
    for (int64_t i = 0; i < size / 2; ++i)
      frequencies_.push_back(static_cast<float>(
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(size))));
  }
  Rope call(TestMatrix& x, int64_t heads, int64_t size, bool inverse = false) {
    return {x.view(),
            heads,
            size,
            {reinterpret_cast<std::byte*>(positions_.data()),
             {static_cast<int64_t>(positions_.size())},
             DType::i32},
            {reinterpret_cast<std::byte*>(frequencies_.data()), {size / 2}, DType::f32},
            inverse};
  }

  Device device_{DeviceOptions{.threads = 2}};
  std::vector<int32_t> positions_;
  std::vector<float> frequencies_;
};

TEST_F(Ropes, RotatesHalves) {
  const int64_t heads = 3, size = 20;
  positions_ = {0, 1, 5, 36, 255, 256, 257, 131071};
  set_frequencies(size);
  for (const DType type : {DType::f32, DType::bf16}) {
    TestMatrix x = TestMatrix::random(8, heads * size, type, 1, 7);
    const auto before = x.get();
    std::vector<double> expected(before.size());
    for (size_t r = 0; r < 8; ++r) {
      for (size_t h = 0; h < 3; ++h) {
        for (size_t i = 0; i < 10; ++i) {
          const size_t at = r * 60 + h * 20 + i;
          const double angle =
              static_cast<double>(static_cast<float>(positions_[r]) * frequencies_[i]);
          const double a = static_cast<double>(before[at]),
                       b = static_cast<double>(before[at + 10]);
          expected[at] = a * std::cos(angle) - b * std::sin(angle);
          expected[at + 10] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
    rope(device_.compute(), call(x, heads, size));
    EXPECT_LT(scaled_error(x.get(), expected), type == DType::f32 ? 3e-7 : 4e-3);
    EXPECT_TRUE(x.padding_untouched());
    rope(device_.compute(), call(x, heads, size, true));
    EXPECT_LT(scaled_error(x.get(), std::vector<double>(before.begin(), before.end())),
              type == DType::f32 ? 3e-7 : 8e-3);
  }
}

// In 16 bits position 257 would be 256: cos 256 = -0.0398, cos 257 = 0.8193.
TEST_F(Ropes, NeighbouringLargePositionsDiffer) {
  positions_ = {256, 257, 4095, 4096};
  frequencies_ = {1.0f};
  for (const DType type : {DType::f32, DType::bf16}) {
    TestMatrix x(4, 2, type);
    x.set(std::vector<float>{1, 0, 1, 0, 1, 0, 1, 0});
    rope(device_.compute(), call(x, 1, 2));
    const auto y = x.get();
    const double tolerance = type == DType::f32 ? 1e-6 : 2e-3;
    EXPECT_NEAR(y[0], std::cos(256.0), tolerance);
    EXPECT_NEAR(y[2], std::cos(257.0), tolerance);
    EXPECT_NEAR(y[2], 0.8193, 2e-3);
    EXPECT_NEAR(y[4], std::cos(4095.0), tolerance);
    EXPECT_NEAR(y[6], std::cos(4096.0), tolerance);
  }
}

TEST_F(Ropes, OddHeadsAndWrongWidthsAreErrors) {
  positions_ = {0, 1};
  frequencies_ = {1.0f, 0.5f};
  TestMatrix x(2, 12, DType::f32);
  EXPECT_THROW(rope(device_.compute(), call(x, 4, 3)), Error);
  EXPECT_THROW(rope(device_.compute(), call(x, 2, 4)), Error);
  EXPECT_NO_THROW(rope(device_.compute(), call(x, 3, 4)));
}

}  // namespace
}  // namespace trireme
