// Learns a byte-level BPE tokenizer from text: `trireme tokenizer train`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/data/tokenize_text.hpp"

namespace trireme {

struct TrainTokenizerOptions {
  TokenizeOptions input;  // inputs, format, key, mark, bad lines; output is the tokenizer.json
  int64_t vocab = 0;      // ids in all: 256 bytes, merges, the end-of-document token
  std::string end_of_document = "<|endoftext|>";
};

struct TrainTokenizerReport {
  int64_t bytes = 0;  // of text that was learned from
  int64_t words = 0;  // different ones
  int64_t vocab = 0;  // less than asked for where no pair comes twice any more
};

// Counts words (pieces of the GPT-2 pattern), then merges the pair that comes most often, again and
// again (Sennrich et al., 2016); of equals the one with the smaller ids. Ids: the bytes, the merges
// in order, then the token that ends a document. Writes Hugging Face's tokenizer.json, complete or
// not at all; the result depends on the text alone. Errors: usage (fewer than 257 ids), no_input,
// bad_data (bad lines, no text), io.
TrainTokenizerReport train_tokenizer(const TrainTokenizerOptions& options);

}  // namespace trireme
