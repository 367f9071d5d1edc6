// Multiple-choice examples in llm.c's evaluation files (HellaSwag): a context and completions, of
// which one is right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct ChoiceExample {
  std::vector<int32_t> context;
  std::vector<std::vector<int32_t>> completions;
  int32_t label = 0;  // the right one
  // Tokens of the longest row: context and completion.
  int64_t longest() const;
};

// Reads the whole file: 256 words of 4 bytes (magic 20240522, version 1, examples, bytes of the
// longest), then words of 2 bytes for each example: 65535, its bytes, its number, label, number of
// completions, context length and tokens, and length and tokens of each completion.
// Errors: no_input; bad_data with the place of what is wrong (a cut file, an empty completion, a
// label beyond the completions, an id beyond `vocab`).
std::vector<ChoiceExample> read_choices(const std::string& path, int64_t vocab);

// The completion with the smallest mean loss, the first of equals; `losses` are sums over the
// tokens of each. llm.c's rule.
int32_t best_completion(const ChoiceExample& example, const std::vector<double>& losses);

}  // namespace trireme
