// NumPy's generators, against values that NumPy printed (formats note 2.4 and 2.13).
#include "trireme/data/numpy_random.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace trireme {
namespace {

std::vector<int> shuffled(NumpyRandomState& random, int n) {
  std::vector<int> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  random.shuffle(std::span(values));
  return values;
}

TEST(NumpyRandomState, FirstWords) {
  NumpyRandomState random(1234);
  for (uint32_t expected : {822569775u, 2137449171u, 2671936806u, 3512589365u, 1880026316u})
    EXPECT_EQ(random.next32(), expected);
}

TEST(NumpyRandomState, Shuffles) {
  NumpyRandomState a(1234), b(42), c(1234);
  EXPECT_EQ(shuffled(a, 10), (std::vector{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  EXPECT_EQ(shuffled(b, 10), (std::vector{8, 1, 5, 0, 7, 2, 9, 4, 3, 6}));
  EXPECT_EQ(shuffled(c, 20),
            (std::vector{3, 13, 2, 16, 14, 5, 4, 0, 8, 18, 17, 11, 10, 9, 7, 1, 19, 12, 6, 15}));
  EXPECT_EQ(shuffled(c, 8), (std::vector{6, 4, 1, 5, 3, 0, 2, 7}));
}

TEST(NumpyRandomState, ShortShufflesDrawNothing) {
  NumpyRandomState random(1234);
  shuffled(random, 0);
  shuffled(random, 1);
  EXPECT_EQ(random.next32(), 822569775u);
}

TEST(NumpyRandomState, WideIntervalsTakeTheHighWordFirst) {
  NumpyRandomState random(1234);
  const uint64_t mask = (uint64_t{1} << 40) - 1;
  const uint64_t word = (uint64_t{822569775} << 32) | 2137449171u;
  EXPECT_EQ(random.interval(mask), word & mask);
  EXPECT_EQ(random.interval(0), 0u);
  EXPECT_EQ(random.next32(), 2671936806u);
}

TEST(NumpyGenerator, FirstWords) {
  NumpyGenerator random(0);
  EXPECT_EQ(random.next64(), 0xa30febcfd9c2825full);
  EXPECT_EQ(random.next64(), 0x4510bdf882d9d721ull);
  EXPECT_EQ(random.next64(), 0x0a7d3da94ecde8b8ull);
}

TEST(NumpyGenerator, HalvesComeLowFirst) {
  NumpyGenerator random(0);
  EXPECT_EQ(random.next32(), 0xd9c2825fu);
  EXPECT_EQ(random.next32(), 0xa30febcfu);
  EXPECT_EQ(random.next32(), 0x82d9d721u);
}

}  // namespace
}  // namespace trireme
