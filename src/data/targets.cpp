// Inputs, labels and mask in one pass over a sample.
#include "trireme/data/targets.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

void make_targets(std::span<const int32_t> tokens, const TargetOptions& options,
                  std::span<int32_t> inputs, std::span<int32_t> targets, std::span<float> mask) {
  const size_t n = inputs.size();
  require(tokens.size() == n + 1 && targets.size() == n && mask.size() == n, ExitCode::internal,
          "{} tokens for {} inputs, {} targets, {} masks", tokens.size(), n, targets.size(),
          mask.size());
  for (size_t i = 0; i < n; ++i) {
    const int32_t input = tokens[i], target = tokens[i + 1];
    const bool ends = options.mask_end_of_document && input == options.end_of_document;
    mask[i] = target == kPadToken || ends ? 0.0f : 1.0f;
    inputs[i] = input == kPadToken ? 0 : input;
    targets[i] = target == kPadToken ? 0 : target;
  }
}

void leave_out(std::span<const int32_t> flags, std::span<float> mask) {
  require(flags.size() == mask.size() + 1, ExitCode::internal, "{} flags for {} masks",
          flags.size(), mask.size());
  for (size_t i = 0; i < mask.size(); ++i)
    if (flags[i + 1] == 0) mask[i] = 0.0f;
}

}  // namespace trireme
