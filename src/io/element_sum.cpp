// The checksum arithmetic. Its constants are part of the file format: `doc/checkpoint_format.md`.
#include "trireme/io/element_sum.hpp"

#include <cstring>

#include "trireme/base/random.hpp"

namespace trireme {
namespace {

constexpr uint64_t kIndexFactor = 0x9E3779B97F4A7C15ull;
constexpr uint64_t kBitsFactor = 0xD1B54A32D192ED03ull;
constexpr uint64_t kSecondFactor = 0xD6E8FEB86659FD93ull;

// Bijections of `bits` for a fixed index.
inline uint64_t first_mix(uint64_t index, uint64_t bits) {
  return mix64((index + 1) * kIndexFactor + bits * kBitsFactor);
}
inline uint64_t second_mix(uint64_t first) {
  return (first ^ (first >> 32)) * kSecondFactor;
}

// Word: the element as an unsigned integer. Exponent and mantissa masks are zero for integers.
template <class Word>
ElementScan scan_words(const std::byte* bytes, size_t count, int64_t first_index, Word exponent,
                       Word mantissa) {
  uint64_t first = 0, second = 0;
  int64_t nans = 0, special = 0;
  const uint64_t start = static_cast<uint64_t>(first_index);
#pragma omp simd reduction(+ : first, second, nans, special)
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, bytes + i * sizeof(Word), sizeof(Word));
    const uint64_t mixed = first_mix(start + i, word);
    first += mixed;
    second += second_mix(mixed);
    const int64_t is_special = (word & exponent) == exponent ? 1 : 0;
    special += is_special;
    nans += (word & mantissa) != 0 ? is_special : 0;
  }
  if (exponent == 0) nans = special = 0;
  return {{first, second}, nans, special - nans};
}

}  // namespace

ElementScan scan_elements(DType dtype, std::span<const std::byte> bytes, int64_t first_index) {
  const size_t count = bytes.size() / size_of(dtype);
  switch (dtype) {
    case DType::f32:
      return scan_words<uint32_t>(bytes.data(), count, first_index, 0x7f800000u, 0x007fffffu);
    case DType::bf16:
      return scan_words<uint16_t>(bytes.data(), count, first_index, 0x7f80u, 0x007fu);
    case DType::i32:
      return scan_words<uint32_t>(bytes.data(), count, first_index, 0u, 0u);
    case DType::u16:
      return scan_words<uint16_t>(bytes.data(), count, first_index, 0u, 0u);
  }
  fail(ExitCode::internal, "no checksum for element type {}", static_cast<int>(dtype));
}

ElementSum sum_bytes(std::span<const std::byte> bytes, int64_t first_index) {
  ElementSum sum;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == std::byte{0}) continue;
    const uint64_t mixed =
        first_mix(static_cast<uint64_t>(first_index) + i, std::to_integer<uint64_t>(bytes[i]));
    sum.add({mixed, second_mix(mixed)});
  }
  return sum;
}

}  // namespace trireme
