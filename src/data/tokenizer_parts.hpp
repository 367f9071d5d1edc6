// Readers of tokenizer files. All throw Error(no_input) for a file that is missing, and
// Error(bad_data), with file and place, for a fault or for something that is not supported.
#pragma once

#include <string>

#include "data/bpe_tokenizer.hpp"

namespace trireme {

// Hugging Face's tokenizer.json with a BPE model.
BpeParts read_tokenizer_json(const std::string& path);
// GPT-2's vocab.json and merges.txt.
BpeParts read_gpt2_files(const std::string& vocab_path, const std::string& merges_path);
// tiktoken's rank files.
BpeParts read_tiktoken(const std::string& path);
// Whether a file's first line is one of tiktoken's.
bool looks_like_tiktoken(const std::string& path);

}  // namespace trireme
