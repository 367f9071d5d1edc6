// Counter-based random numbers against published vectors and values computed in high precision.
#include "trireme/base/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

namespace trireme {
namespace {

constexpr char kName[] = "layers.0.attention.qkv.weight";

void expect_words(PhiloxWords got, std::array<uint32_t, 4> expected) {
  EXPECT_EQ(got.x, expected[0]);
  EXPECT_EQ(got.y, expected[1]);
  EXPECT_EQ(got.z, expected[2]);
  EXPECT_EQ(got.w, expected[3]);
}

// The known-answer vectors of Random123 for philox4x32-10.
TEST(Philox, KnownAnswers) {
  expect_words(philox(0, 0, 0, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  expect_words(philox(ones, ones, ones, ones, 0xffffffffffffffffull),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0x299f31d0a4093822ull),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(NameHash, IsStable) {
  EXPECT_EQ(name_hash(""), 0xf52a15e9a9b5e89bull);
  EXPECT_EQ(name_hash("a"), 0x02c0bdbf481420f8ull);
  EXPECT_EQ(name_hash(kName), 0x85e52972e4d2374cull);
  EXPECT_EQ(stream_key(1234, ""), 0xdc7265c415be9f5bull);
  EXPECT_EQ(stream_key(1234, kName), 0x290e612489b9ddcaull);
}

TEST(NameHash, SeedsAndNamesGiveDifferentKeys) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 16; ++seed)
    for (const char* name : {"a", "b", "ab", "ba", "layers.1.x", "layers.10.x"})
      keys.insert(stream_key(seed, name));
  EXPECT_EQ(keys.size(), 16u * 6u);
}

struct Golden {
  uint64_t index;
  double value;  // the inverse distribution function at the same uniform, in 40 digits
  uint64_t bits;
};

// Values by an independent computation; bits because they are part of the checkpoint's promise.
TEST(NormalAt, GoldenValues) {
  const Golden golden[] = {
      {0, 0.14437773884701250817, 0x3fc27af8414f2602ull},
      {1, -0.10279915561053111532, 0xbfba510ba3675558ull},
      {2, -0.27552402190971245257, 0xbfd1a22f81d755a5ull},
      {3, -0.14720035624849503695, 0xbfc2d7761605feb4ull},
      {4294967296, 2.1685604563753181347, 0x40015936397c3f20ull},
      {4294967301, -0.066131492074151849504, 0xbfb0edfe53b1b4d3ull},
      {11598144, -5.3087205543989458278, 0xc0153c213db2fc5full},
      {14456514, 5.9043356815899583167, 0x40179e0a2c442392ull},
  };
  const uint64_t key = stream_key(1234, kName);
  for (const Golden& g : golden) {
    EXPECT_NEAR(normal_at(key, g.index), g.value, 1e-15 * (1 + std::fabs(g.value))) << g.index;
    EXPECT_EQ(std::bit_cast<uint64_t>(normal_at(key, g.index)), g.bits) << g.index;
  }
}

TEST(NormalAt, MomentsAndTails) {
  const uint64_t key = stream_key(7, "moments");
  const int count = 400000;
  double sum[5] = {};
  int beyond2 = 0;
  int beyond4 = 0;
  for (int i = 0; i < count; ++i) {
    const double x = normal_at(key, static_cast<uint64_t>(i));
    double power = 1;
    for (double& s : sum) {
      s += power;
      power *= x;
    }
    beyond2 += std::fabs(x) > 2;
    beyond4 += std::fabs(x) > 4;
  }
  const double n = count;
  EXPECT_NEAR(sum[1] / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(sum[2] / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(sum[3] / n, 0, 4 * std::sqrt(15 / n));
  EXPECT_NEAR(sum[4] / n, 3, 4 * std::sqrt(96 / n));
  EXPECT_NEAR(beyond2 / n, 0.0455003, 4 * std::sqrt(0.0455 / n));
  EXPECT_NEAR(beyond4 / n, 6.334e-5, 4 * std::sqrt(6.334e-5 / n));
}

// Neighbouring addresses, and the same index of two streams, are not related.
TEST(NormalAt, NeighboursAreUncorrelated) {
  const uint64_t a = stream_key(1, "a");
  const uint64_t b = stream_key(2, "a");
  const int count = 100000;
  double neighbour = 0;
  double streams = 0;
  double halves = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t at = static_cast<uint64_t>(i);
    const double x = normal_at(a, at);
    neighbour += x * normal_at(a, at + 1);
    streams += x * normal_at(b, at);
    halves += x * normal_at(a, at + (1ull << 32));
  }
  const double bound = 4 / std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(neighbour / count, 0, bound);
  EXPECT_NEAR(streams / count, 0, bound);
  EXPECT_NEAR(halves / count, 0, bound);
}

}  // namespace
}  // namespace trireme
