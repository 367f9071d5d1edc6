// The prompts of `trireme generate`: from the command line or a file, as token ids.
#pragma once

#include <string>
#include <vector>

#include "app/arguments.hpp"
#include "trireme/data/tokenizer.hpp"
#include "trireme/parallel/generator.hpp"

namespace trireme::app {

// Texts of --prompt, or of --prompt-file: the lines of a text, or the values under --key (default:
// prompt) of the lines of a .jsonl file; - is standard input. One empty prompt where neither is
// given. Errors: usage, no_input, bad_data with file and line.
std::vector<std::string> read_prompts(const Arguments& arguments);

// A prompt begins a document: the tokenizer's own start marks come first, and an empty one is the
// end of the document before it. Throws Error(bad_data) for one that leaves no room in `context`.
std::vector<Prompt> encode_prompts(const std::vector<std::string>& texts,
                                   const Tokenizer& tokenizer, int64_t context);

// For a broadcast.
std::string pack(const std::vector<Prompt>& prompts);
std::vector<Prompt> unpack(const std::string& bytes);

}  // namespace trireme::app
