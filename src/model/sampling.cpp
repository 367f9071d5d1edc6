#include "trireme/model/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/random.hpp"

namespace trireme {
namespace {

// Tokens in falling order of their logits: the first `count` are in place.
std::vector<int32_t> largest_tokens(std::span<const float> logits, size_t count) {
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto larger = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count),
                    tokens.end(), larger);
  tokens.resize(count);
  return tokens;
}

// The shortest start of falling weights that holds `part` of their sum; at least one.
size_t nucleus(std::span<const double> weights, double part) {
  const double wanted = part * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    if ((sum += weights[i]) >= wanted) return i + 1;
  return weights.size();
}

}  // namespace

double draw_at(uint64_t seed, uint64_t sequence, uint64_t position) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const PhiloxWords w = philox(low(position), high(position), low(sequence), high(sequence),
                               stream_key(seed, "generate"));
  const uint64_t bits = (uint64_t{w.x} << 32 | w.y) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

int32_t draw_token(std::span<const float> logits, const Sampling& sampling, uint64_t sequence,
                   uint64_t position) {
  require(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }), ExitCode::internal,
          "sequence {}, position {}: a logit is not finite: the weights are broken, or too large "
          "for this type",
          sequence, position);
  if (sampling.temperature == 0)
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  const bool all = sampling.top_k == 0 && sampling.top_p >= 1;
  const size_t count = sampling.top_k == 0
                           ? logits.size()
                           : std::min(logits.size(), static_cast<size_t>(sampling.top_k));
  std::vector<int32_t> tokens;
  if (all) {
    tokens.resize(count);
    std::iota(tokens.begin(), tokens.end(), 0);
  } else {
    tokens = largest_tokens(logits, count);
  }
  const auto top = static_cast<double>(*std::ranges::max_element(logits));
  const auto weight = [&](int32_t token) {
    const auto logit = static_cast<double>(logits[static_cast<size_t>(token)]);
    return std::exp((logit - top) / sampling.temperature);
  };
  std::vector<double> weights(count);
  std::ranges::transform(tokens, weights.begin(), weight);
  if (sampling.top_p < 1) tokens.resize(nucleus(weights, sampling.top_p));
  // Along the tokens, not the weights: two layouts may order near equals differently.
  std::ranges::sort(tokens);
  weights.resize(tokens.size());
  std::ranges::transform(tokens, weights.begin(), weight);
  double left = draw_at(sampling.seed, sequence, position) *
                std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < tokens.size(); ++i)
    if ((left -= weights[i]) < 0) return tokens[i];
  return tokens.back();
}

}  // namespace trireme
