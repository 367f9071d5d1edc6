// Which inputs, and which parts of them, a share of a tokenization reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/byte_source.hpp"
#include "data/text_batch.hpp"
#include "trireme/data/tokenize_text.hpp"

namespace trireme {

struct InputPart {
  std::string path;
  Packing packing = Packing::none;
  bool standard_input = false;
  bool jsonl = false;
  bool first = false;  // the file is counted here
  FilePart part;       // of the file; all of it where it cannot be entered in the middle
  int64_t bytes = 0;   // of the file that count as this share's work
};

struct TokenizePlan {
  std::vector<InputPart> parts;
  int64_t all_bytes = 0;  // of all inputs
};

// Cuts the inputs, laid end to end, into equal shares. Compressed files and texts without a mark go
// to the share that their first byte falls into. Errors: no_input, usage.
TokenizePlan plan_tokenization(const TokenizeOptions& options, Share share);

}  // namespace trireme
