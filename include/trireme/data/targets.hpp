// From the T+1 tokens of a sample to inputs, labels and the loss mask, as Megatron's GPTDataset.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

constexpr int32_t kPadToken = -1;

struct TargetOptions {
  int32_t end_of_document = -1;       // id; needed for mask_end_of_document only
  bool mask_end_of_document = false;  // no loss where the *input* is the end of a document
};

// tokens [T+1]; inputs, targets [T]; mask [T] of 0 and 1. inputs = tokens[0..T), targets =
// tokens[1..T]. mask is 0 where the target is kPadToken, and, if asked, where the input ends a
// document (the place that would predict the next document's first token). Pad tokens become 0 in
// both.
void make_targets(std::span<const int32_t> tokens, const TargetOptions& options,
                  std::span<int32_t> inputs, std::span<int32_t> targets, std::span<float> mask);

// Takes targets whose flag is 0 out of the loss. flags [T+1], of the tokens; mask [T].
void leave_out(std::span<const int32_t> flags, std::span<float> mask);

}  // namespace trireme
