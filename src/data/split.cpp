// Split strings to fractions to ranges, in the order of operations that Megatron uses.
#include "trireme/data/split.hpp"

#include <charconv>
#include <cmath>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

bool is_number_character(char c) {
  return c == '.' || (c >= '0' && c <= '9');
}

bool is_separator(char c) {
  return std::string_view(" \t\n,;:/|[]()").find(c) != std::string_view::npos;
}

double number(std::string_view word, std::string_view text) {
  double value = 0;
  const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), value);
  require(fault == std::errc() && end == word.data() + word.size(), ExitCode::bad_config,
          "split \"{}\": \"{}\" is not a number", text, word);
  return value;
}

// Bounds of the parts: 0, a0, a0 + a1, a0 + a1 + a2, summed from left to right as Megatron does.
std::array<double, kSplits + 1> bounds_of(const std::array<double, kSplits>& fractions) {
  std::array<double, kSplits + 1> bounds{};
  for (size_t i = 0; i < kSplits; ++i) bounds[i + 1] = bounds[i] + fractions[i];
  return bounds;
}

template <class Round>
std::array<SplitRange, kSplits> cut(const std::array<double, kSplits>& fractions, int64_t n,
                                    Round round) {
  const std::array<double, kSplits + 1> bounds = bounds_of(fractions);
  std::array<SplitRange, kSplits> ranges;
  for (size_t i = 0; i < kSplits; ++i) {
    if (!(bounds[i + 1] > bounds[i])) continue;
    ranges[i] = {true, static_cast<int64_t>(round(bounds[i] * static_cast<double>(n))),
                 static_cast<int64_t>(round(bounds[i + 1] * static_cast<double>(n)))};
  }
  return ranges;
}

}  // namespace

const char* name_of(DataSplit split) {
  switch (split) {
    case DataSplit::train:
      return "training";
    case DataSplit::validation:
      return "validation";
    case DataSplit::test:
      return "test";
  }
  return "unknown";
}

std::array<double, kSplits> parse_split(std::string_view text) {
  std::array<double, kSplits> fractions{};
  size_t count = 0;
  for (size_t i = 0; i < text.size();) {
    require(is_number_character(text[i]) || is_separator(text[i]), ExitCode::bad_config,
            "split \"{}\": unexpected '{}'; write up to three numbers, such as 969,30,1", text,
            text[i]);
    size_t end = i;
    while (end < text.size() && is_number_character(text[end])) ++end;
    if (end > i) {
      require(count < kSplits, ExitCode::bad_config,
              "split \"{}\": more than three numbers (training, validation, test)", text);
      fractions[count++] = number(text.substr(i, end - i), text);
    }
    i = end > i ? end : i + 1;
  }
  const double sum = fractions[0] + fractions[1] + fractions[2];
  require(sum > 0 && std::isfinite(sum), ExitCode::bad_config,
          "split \"{}\": needs a number above zero, such as 969,30,1", text);
  for (double& fraction : fractions) fraction /= sum;
  return fractions;
}

std::array<SplitRange, kSplits> split_sequences(const std::array<double, kSplits>& fractions,
                                                int64_t n) {
  return cut(fractions, n, [](double x) { return std::nearbyint(x); });
}

std::array<SplitRange, kSplits> split_tokens(const std::array<double, kSplits>& fractions,
                                             int64_t n) {
  std::array<SplitRange, kSplits> ranges =
      cut(fractions, n, [](double x) { return std::floor(x); });
  for (size_t i = kSplits; i-- > 0;) {
    if (!ranges[i].present) continue;
    ranges[i].last = n;  // the sum of the fractions may round below 1
    break;
  }
  return ranges;
}

}  // namespace trireme
