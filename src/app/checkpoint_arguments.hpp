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
// beside the checkpoint or in its run directory, or for a vocabulary of 257 the bytes tokenizer.
// Throws Error(usage) where there is none, or its vocabulary is larger than the model's.
std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointDeck& checkpoint, const std::string& named,
                                        const TokenizerOptions& options);

// Runs a local step and makes its failure that of all ranks. Collective.
template <class Step>
void together(const Communicator& world, Step&& step) {
  ExitCode code = ExitCode::ok;
  std::string text;
  try {
    step();
  } catch (const Error& e) {
    code = e.code();
    text = e.what();
  } catch (const std::exception& e) {
    code = ExitCode::internal;
    text = e.what();
  }
  const auto worst = static_cast<ExitCode>(world.max(static_cast<int64_t>(code)));
  world.require_all(code == ExitCode::ok, worst, text);
}

}  // namespace trireme::app
