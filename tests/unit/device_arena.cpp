// Arenas and buffers: alignment, dry walks that equal real ones, scratch, bytes by purpose, poison.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>

#include "trireme/device/device.hpp"

namespace trireme {
namespace {

size_t walk(Arena& arena) {
  arena.take({3, 5}, DType::f32, "weights");
  arena.take({7}, DType::bf16, "gradients");
  const size_t mark = arena.mark();
  arena.take({1000}, DType::f32, "attention");
  arena.rewind(mark);
  arena.take({200}, DType::f32, "mlp");
  arena.take({900}, DType::f32, "mlp");
  arena.rewind(mark);
  arena.take({2}, DType::i32, "weights");
  return arena.used_bytes();
}

std::vector<std::pair<std::string, size_t>> lines_of(const Arena& arena) {
  std::vector<std::pair<std::string, size_t>> lines;
  for (const ArenaLine& line : arena.lines()) lines.emplace_back(line.purpose, line.bytes);
  return lines;
}

TEST(Arena, DryWalkCountsWhatARealOneUses) {
  Arena dry = Arena::dry();
  EXPECT_EQ(walk(dry), 768u);
  EXPECT_EQ(dry.high_water_bytes(), 512u + 1024u + 3840u);
  Arena real = Arena::real(dry.high_water_bytes());
  EXPECT_EQ(walk(real), 768u);
  EXPECT_EQ(real.high_water_bytes(), dry.high_water_bytes());
  EXPECT_EQ(lines_of(real), lines_of(dry));
}

TEST(Arena, LinesAddUpToTheHighWaterMark) {
  Arena arena = Arena::dry();
  walk(arena);
  const std::vector<std::pair<std::string, size_t>> expected = {
      {"weights", 256}, {"gradients", 256}, {"attention", 0}, {"mlp", 4864}};
  EXPECT_EQ(lines_of(arena), expected);
}

TEST(Arena, PiecesAreAlignedAndDisjoint) {
  Arena arena = Arena::real(1 << 16);
  std::byte* end = nullptr;
  for (const int64_t size : {1, 63, 64, 65, 1000, 0, 3}) {
    const TensorView view = arena.take({size}, DType::f32, "x");
    ASSERT_NE(view.data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % Arena::kAlignment, 0u);
    EXPECT_GE(view.data, end);
    end = view.data + view.bytes();
  }
}

TEST(Arena, DryViewsHaveNoMemory) {
  Arena arena = Arena::dry();
  const TensorView view = arena.take({2, 3}, DType::bf16, "x");
  EXPECT_EQ(view.data, nullptr);
  EXPECT_EQ(view.bytes(), 12u);
  EXPECT_TRUE(arena.is_dry());
}

TEST(Arena, ExhaustionAndWrongRewindsAreErrors) {
  Arena arena = Arena::real(512);
  arena.take({64}, DType::f32, "a");
  EXPECT_THROW(arena.take({65}, DType::f32, "b"), Error);
  EXPECT_NO_THROW(arena.take({64}, DType::f32, "b"));
  EXPECT_THROW(arena.take({1}, DType::f32, "c"), Error);
  EXPECT_THROW(arena.rewind(513), Error);
  EXPECT_THROW(arena.rewind(100), Error);
}

TEST(Arena, SizesThatDoNotFitAreErrors) {
  Arena arena = Arena::dry();
  EXPECT_THROW(arena.take({int64_t{1} << 40, int64_t{1} << 40}, DType::f32, "x"), Error);
}

TEST(Buffer, MovesLeaveTheSourceEmpty) {
  Buffer first(1000, Memory::pinned);
  std::byte* data = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(first.bytes(), 0u);
  EXPECT_EQ(second.data(), data);
  Buffer third(8, Memory::device);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.bytes(), 1000u);
  EXPECT_EQ(second.data(), nullptr);
}

TEST(Buffer, LargeBlocksStartAtAHugePage) {
  const Buffer buffer(size_t{5} << 20, Memory::device);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (size_t{2} << 20), 0u);
}

TEST(Buffer, PoisonReadsAsNotANumber) {
  const char* kept = std::getenv("TRIREME_POISON_MEMORY");
  setenv("TRIREME_POISON_MEMORY", "1", 1);
  const Buffer buffer(64, Memory::device);
  if (kept == nullptr) unsetenv("TRIREME_POISON_MEMORY");
  EXPECT_TRUE(std::isnan(*reinterpret_cast<const float*>(buffer.data())));
  EXPECT_TRUE(std::isnan(from_bf16(*reinterpret_cast<const uint16_t*>(buffer.data()))));
}

}  // namespace
}  // namespace trireme
