// The checksum: values worked out apart from this program, the same for any pieces, sensitive to
// any flipped bit.
#include "trireme/io/element_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace trireme {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(ElementSum, HasTheValuesOfTheFormat) {
  const std::vector<float> values = {1.0f, -2.5f, 0.0f, -0.0f, 3.14159274f};
  EXPECT_EQ(scan_elements(DType::f32, bytes_of(values), 0).sum,
            (ElementSum{0x5158367c1308930full, 0x97e490f142c8a16bull}));
  const std::vector<uint16_t> halves = {0x3f80, 0xc020, 0x0001};
  EXPECT_EQ(scan_elements(DType::bf16, bytes_of(halves), 1'000'000'000'000).sum,
            (ElementSum{0xac279aa0f213f3b9ull, 0x80508c45a3ed16f6ull}));
}

TEST(ElementSum, DoesNotDependOnThePieces) {
  std::mt19937 random(5);
  std::vector<uint32_t> values(10'007);
  for (uint32_t& value : values) value = random() & 0x3fffffffu;
  const auto all = bytes_of(values);
  const ElementScan whole = scan_elements(DType::f32, all, 0);
  for (int trial = 0; trial < 20; ++trial) {
    ElementScan sum;
    std::vector<std::pair<size_t, size_t>> pieces;
    for (size_t first = 0; first < values.size();) {
      const size_t count = std::min<size_t>(1 + random() % 3001, values.size() - first);
      pieces.emplace_back(first, count);
      first += count;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const auto& [first, count] : pieces)
      sum.add(scan_elements(DType::f32, all.subspan(4 * first, 4 * count),
                            static_cast<int64_t>(first)));
    EXPECT_EQ(sum.sum, whole.sum);
  }
}

TEST(ElementSum, NoticesEveryFlippedBitAndSwappedElements) {
  std::mt19937 random(6);
  std::vector<uint16_t> values(257);
  for (uint16_t& value : values) value = static_cast<uint16_t>(random());
  const ElementSum before = scan_elements(DType::bf16, bytes_of(values), 0).sum;
  for (size_t bit = 0; bit < values.size() * 16; ++bit) {
    values[bit / 16] = static_cast<uint16_t>(values[bit / 16] ^ (1u << (bit % 16)));
    const ElementSum after = scan_elements(DType::bf16, bytes_of(values), 0).sum;
    EXPECT_NE(after.first, before.first);
    EXPECT_NE(after.second, before.second);
    values[bit / 16] = static_cast<uint16_t>(values[bit / 16] ^ (1u << (bit % 16)));
  }
  std::swap(values[3], values[200]);
  EXPECT_NE(scan_elements(DType::bf16, bytes_of(values), 0).sum, before);
}

TEST(ElementSum, CountsWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  std::vector<float> values(1003, 1.5f);
  values[0] = nan;
  values[501] = -infinite;
  values[1001] = -nan;
  values[1002] = infinite;
  values[7] = std::numeric_limits<float>::max();
  values[8] = std::numeric_limits<float>::denorm_min();
  const ElementScan scan = scan_elements(DType::f32, bytes_of(values), 0);
  EXPECT_EQ(scan.nans, 2);
  EXPECT_EQ(scan.infinities, 2);
  const std::vector<uint16_t> halves = {0x7f80, 0xff80, 0x7fc1, 0x7f7f, 0x0001};
  const ElementScan half_scan = scan_elements(DType::bf16, bytes_of(halves), 0);
  EXPECT_EQ(half_scan.nans, 1);
  EXPECT_EQ(half_scan.infinities, 2);
  // The same bits as integers are ordinary numbers.
  EXPECT_EQ(scan_elements(DType::i32, bytes_of(values), 0).non_finite(), 0);
  EXPECT_EQ(scan_elements(DType::u16, bytes_of(halves), 0).non_finite(), 0);
  EXPECT_EQ(scan_elements(DType::u16, bytes_of(halves), 0).sum, half_scan.sum);
}

TEST(ElementSum, ZeroBytesAddNothing) {
  std::vector<uint8_t> bytes(4096, 0);
  EXPECT_EQ(sum_bytes(bytes_of(bytes), 77), ElementSum{});
  bytes[4095] = 1;
  const ElementSum one = sum_bytes(bytes_of(bytes), 77);
  EXPECT_NE(one, ElementSum{});
  EXPECT_NE(one, sum_bytes(bytes_of(bytes), 78));
}

}  // namespace
}  // namespace trireme
