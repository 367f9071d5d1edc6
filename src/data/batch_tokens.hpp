// The work of one thread of a tokenization: a batch of text to a batch of ids.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/text_batch.hpp"
#include "trireme/data/tokenize_text.hpp"

namespace trireme {

struct BatchTokens {
  std::vector<int32_t> ids;
  std::vector<size_t> ends;         // of documents in `ids`
  std::vector<size_t> prompts_end;  // of the prompts in them; empty where there are none
  bool open_end = false;            // the ids behind the last end begin a document that goes on
  TokenizeReport counts;            // of lines that gave no document
  std::optional<int> ended_piece;   // no batch, but the end of this piece
};

// Errors: bad_data with file and line.
BatchTokens tokenize_batch(const TextBatch& batch, const Tokenizer& tokenizer, bool jsonl,
                           const TokenizeOptions& options);

}  // namespace trireme
