#include <gtest/gtest.h>

#include "trireme/ops/gpu_work.hpp"

namespace trireme {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(GpuWork, AttentionKeepsTwoBytesForEachScore) {
  EXPECT_EQ(gpu_attention_bytes(8, 1024, 12, 12), 8 * 12 * 2 * kMiB);
  EXPECT_EQ(gpu_attention_bytes(1, 1000, 12, 12), 12 * 2 * kMiB);  // rounded up to 1024
}

TEST(GpuWork, WhatWantsMoreGoesInPieces) {
  EXPECT_EQ(gpu_attention_bytes(4, 4096, 32, 8), 1024 * kMiB);
  EXPECT_EQ(gpu_attention_bytes(1, 16384, 8, 2), 2048 * kMiB);  // one key head and its four
}

TEST(GpuWork, NoneWhereAHeadIsTooLong) {
  EXPECT_EQ(gpu_attention_bytes(1, 65536, 8, 8), 0);
}

}  // namespace
}  // namespace trireme
