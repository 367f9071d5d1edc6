// Cutting a dataset into training, validation and test parts.
//
// A split is three numbers such as "969,30,1" or "0.9, 0.1", divided by their sum. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

enum class DataSplit : uint8_t { train, validation, test };
constexpr int kSplits = 3;
const char* name_of(DataSplit split);

// [first, last); absent parts have a fraction of zero, present ones may still be empty.
struct SplitRange {
  bool present = false;
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
};

// Fractions that sum to 1; missing ones are 0. Any separators; a sign, a letter, a malformed
// number, more than three numbers or a sum of zero is an Error(bad_config).
std::array<double, kSplits> parse_split(std::string_view text);

// Megatron's ranges over n sequences: cumulated fractions times n, rounded half to even.
std::array<SplitRange, kSplits> split_sequences(const std::array<double, kSplits>& fractions,
                                                int64_t n);
// Ranges over n tokens, for windows: rounded down, as nanoGPT; the last present part ends at n.
std::array<SplitRange, kSplits> split_tokens(const std::array<double, kSplits>& fractions,
                                             int64_t n);

}  // namespace trireme
