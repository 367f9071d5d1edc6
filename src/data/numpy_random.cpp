// MT19937 intervals, SeedSequence and PCG64 as NumPy defines them.
#include "trireme/data/numpy_random.hpp"

namespace trireme {
namespace {

__extension__ using Word128 = unsigned __int128;

constexpr Word128 wide(uint64_t high, uint64_t low) {
  return (Word128{high} << 64) | low;
}

constexpr Word128 kMultiplier = wide(2549297995355413924ull, 4865540595714422341ull);

// SeedSequence's hash of one word: the hash constant moves on with every use.
class WordHash {
 public:
  WordHash(uint32_t start, uint32_t multiplier) : constant_(start), multiplier_(multiplier) {}
  uint32_t operator()(uint32_t value) {
    value ^= constant_;
    constant_ *= multiplier_;
    value *= constant_;
    return value ^ (value >> 16);
  }

 private:
  uint32_t constant_, multiplier_;
};

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t r = x * 0xca01f9ddu - y * 0x4973f715u;
  return r ^ (r >> 16);
}

// Four 64-bit words of state from SeedSequence(seed).
std::array<uint64_t, 4> seed_words(uint32_t seed) {
  WordHash fill(0x43b0d7e5u, 0x931e8875u);
  std::array<uint32_t, 4> pool{fill(seed), fill(0), fill(0), fill(0)};
  for (size_t s = 0; s < 4; ++s)
    for (size_t d = 0; d < 4; ++d)
      if (s != d) pool[d] = mix(pool[d], fill(pool[s]));
  WordHash draw(0x8b51f9ddu, 0x58f38dedu);
  std::array<uint64_t, 4> words{};
  for (size_t i = 0; i < 8; ++i)
    words[i / 2] |= static_cast<uint64_t>(draw(pool[i % 4])) << (32 * (i % 2));
  return words;
}

}  // namespace

uint64_t NumpyRandomState::interval(uint64_t max) {
  if (max == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> __builtin_clzll(max);
  for (;;) {
    uint64_t value = next32();
    if (max > UINT32_MAX) value = (value << 32) | next32();
    if ((value & mask) <= max) return value & mask;
  }
}

NumpyGenerator::NumpyGenerator(uint32_t seed) {
  const std::array<uint64_t, 4> words = seed_words(seed);
  increment_ = 2 * wide(words[2], words[3]) + 1;
  step();
  state_ += wide(words[0], words[1]);
  step();
}

void NumpyGenerator::step() {
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyGenerator::next64() {
  step();
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  const unsigned turn = static_cast<unsigned>(state_ >> 122);
  return (folded >> turn) | (folded << ((64 - turn) % 64));
}

uint32_t NumpyGenerator::next32() {
  if (has_half_) {
    has_half_ = false;
    return kept_half_;
  }
  const uint64_t value = next64();
  kept_half_ = static_cast<uint32_t>(value >> 32);
  has_half_ = true;
  return static_cast<uint32_t>(value);
}

int32_t NumpyGenerator::integer(int32_t low, int32_t high) {
  const uint32_t choices = static_cast<uint32_t>(high) - static_cast<uint32_t>(low);
  uint64_t product = static_cast<uint64_t>(next32()) * choices;
  if (static_cast<uint32_t>(product) < choices) {
    const uint32_t threshold = (0u - choices) % choices;
    while (static_cast<uint32_t>(product) < threshold)
      product = static_cast<uint64_t>(next32()) * choices;
  }
  return low + static_cast<int32_t>(product >> 32);
}

}  // namespace trireme
