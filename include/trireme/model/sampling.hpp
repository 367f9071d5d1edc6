// Drawing a token from logits: pure, on the host.
//
// The random number of a draw is a function of (seed, sequence, position), so that what is drawn
// does not depend on the layout, on what else is generated beside it, or on the order of the work.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

struct Sampling {
  double temperature = 0;  // 0: the largest logit
  int64_t top_k = 0;       // only the k largest; 0: all
  double top_p = 1;        // then only the fewest largest whose probabilities add up to p
  uint64_t seed = 1234;
};

// The number in [0, 1) of a draw.
double draw_at(uint64_t seed, uint64_t sequence, uint64_t position);

// The token for `position` of `sequence`. Among equal logits the lower token counts as larger.
// Probabilities are softmax(logits / temperature) over what top_k leaves; what top_p leaves of them
// is laid out by token, and the draw falls on one. Throws Error(internal) where a logit is NaN or
// infinite.
int32_t draw_token(std::span<const float> logits, const Sampling& sampling, uint64_t sequence,
                   uint64_t position);

}  // namespace trireme
