// What the commands that use a checkpoint share: their words, and the choice of its tokenizer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/tokenizer.hpp"
#include "trireme/train/checkpoint_deck.hpp"

namespace trireme::app {

// Words of the form --section.key=value are overrides of the deck, the others options.
struct SplitWords {
  explicit SplitWords(std::span<const std::string> words);
  std::vector<std::string> overrides, options;
};

// Local. The tokenizer by name or path; where `named` is empty the deck's (data.tokenizer), the one
// beside the checkpoint, in its run directory or of the import that it came from, or for a
// vocabulary of 257 the bytes tokenizer. Throws Error(usage) where there is none, or its vocabulary
// is larger than the model's.
std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointDeck& checkpoint, const std::string& named,
                                        const TokenizerOptions& options);

}  // namespace trireme::app
