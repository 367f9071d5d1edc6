// Attention by its definition, on the host in f64, for sampled queries and keys: the whole row of
// scores of a query, or the whole column of a key.
#pragma once

#include "app/bench_check.hpp"

namespace trireme::app {

// Both call the operation once. Throw Error(internal) where output, log-sum-exp or a gradient is
// wrong.
void check_attention_forward(Stream& stream, const AttentionForward& call);
// The forward pass has run: its output and log-sum-exp are inputs.
void check_attention_backward(Stream& stream, const AttentionBackward& call);

}  // namespace trireme::app
