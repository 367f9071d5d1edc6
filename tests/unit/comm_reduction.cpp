// The local part of reductions: order, rounding, aliasing, NaN; without MPI.
#include "comm/cpu/reduction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trireme {

namespace {

template <class T>
std::vector<const std::byte*> pointers(const std::vector<std::vector<T>>& parts) {
  std::vector<const std::byte*> result;
  for (const std::vector<T>& part : parts)
    result.push_back(reinterpret_cast<const std::byte*>(part.data()));
  return result;
}

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace

TEST(Reduction, AddsInTheOrderOfTheParts) {
  // 1 is lost beside 2^25 in f32: the order shows.
  const std::vector<std::vector<float>> parts{
      {33554432.0f, 1.0f}, {1.0f, 1.0f}, {1.0f, 33554432.0f}};
  std::vector<float> out(2);
  reduce_in_order(DType::f32, Reduce::sum, pointers(parts), 2, bytes(out));
  EXPECT_EQ(out[0], 33554432.0f);
  EXPECT_EQ(out[1], 33554434.0f);
}

TEST(Reduction, RoundsBf16Once) {
  // 256 + 1 + 1: each step rounded to 8 bits gives 256, the sum in f32 gives 258.
  std::vector<std::vector<uint16_t>> parts{{to_bf16(256)}, {to_bf16(1)}, {to_bf16(1)}};
  reduce_in_order(DType::bf16, Reduce::sum, pointers(parts), 1, bytes(parts[1]));
  EXPECT_EQ(from_bf16(parts[1][0]), 258.0f);
}

TEST(Reduction, AnyPartMayBeTheResult) {
  for (size_t target = 0; target < 3; ++target) {
    // Over the size at which threads are used, and not a multiple of a block.
    const size_t count = 300001;
    std::vector<std::vector<float>> parts(3, std::vector<float>(count));
    for (size_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < count; ++i)
        parts[r][i] = static_cast<float>(r + 1) * static_cast<float>(i % 1013);
    reduce_in_order(DType::f32, Reduce::sum, pointers(parts), static_cast<int64_t>(count),
                    bytes(parts[target]));
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(parts[target][i], 6.0f * static_cast<float>(i % 1013)) << i;
  }
}

TEST(Reduction, MaximumKeepsNaNFromAnyPart) {
  for (size_t bad = 0; bad < 3; ++bad) {
    std::vector<std::vector<float>> parts{{-3.0f, 1.0f}, {-2.0f, 7.0f}, {-5.0f, 2.0f}};
    parts[bad][0] = std::nanf("");
    std::vector<float> out(2);
    reduce_in_order(DType::f32, Reduce::max, pointers(parts), 2, bytes(out));
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_EQ(out[1], 7.0f);
  }
  const std::vector<std::vector<float>> low{{-INFINITY}, {-INFINITY}};
  std::vector<float> out(1);
  reduce_in_order(DType::f32, Reduce::max, pointers(low), 1, bytes(out));
  EXPECT_EQ(out[0], -INFINITY);
}

TEST(Reduction, NothingIsNothing) {
  float untouched = 5.0f;
  const std::vector<const std::byte*> parts{nullptr, nullptr};
  reduce_in_order(DType::f32, Reduce::sum, parts, 0, reinterpret_cast<std::byte*>(&untouched));
  EXPECT_EQ(untouched, 5.0f);
}

}  // namespace trireme
