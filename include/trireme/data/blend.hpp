// Blends: several datasets as one stream of samples, in Megatron's manner.
//
// A blend is written as Megatron's --data-path: words that are all prefixes, or pairs of a weight
// and a prefix. Parsing and sizes are pure functions of the text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/split.hpp"

namespace trireme {

constexpr int64_t kMostDatasets = 32766;  // of a blend: Megatron numbers them in 16 bits

struct Blend {
  std::vector<std::string> paths;
  std::vector<double> weights;  // as written; empty: none were given
};

// An odd number of words are prefixes; an even number are pairs of weight and prefix if the first
// word of every pair is a number, prefixes if of none. Errors: bad_config (no words, only some
// numbers, a weight that is not above 0, too many datasets).
Blend parse_blend(std::span<const std::string> words);
Blend parse_blend(std::string_view text);  // words between white space

// What a deck says about datasets: one blend that is cut into parts, or a blend for each part.
struct BlendChoice {
  Blend whole;                         // no paths: `parts` are given
  std::array<Blend, kSplits> parts{};  // no paths: no samples of that part
};
// `text` is a blend, the name of one dataset that exists (which may hold blanks), or @FILE: a file
// that holds the words of a blend, or a JSON object with the keys train, valid and test, each a
// text or a list of words. Errors: bad_config, no_input and bad_data (the file).
BlendChoice read_blend(const std::string& text);

// A dataset with a name: "web: PREFIX; code: 0.5 A 0.5 B".
struct NamedBlend {
  std::string name;
  Blend blend;
};
// Errors: bad_config (no name, a name that is not letters, digits, - and _, a name twice).
std::vector<NamedBlend> parse_named_blends(std::string_view text);

// Divided by their sum, which is added up in NumPy's order.
std::vector<double> normalized(std::span<const double> weights);

// Samples to draw from each dataset of a weighted blend of `requested` samples, and samples to
// prepare, which are half a percent more. `weights` are normalized.
struct BlendSizes {
  std::vector<int64_t> used, prepared;
  int64_t samples = 0;  // of the blend: the sum of `used`, no fewer than requested
};
BlendSizes blend_sizes(std::span<const double> weights, int64_t requested);

}  // namespace trireme
