// Which inputs a tokenization reads, and which parts of them a piece of it.
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
  bool whole = false;  // cannot be entered in the middle
  bool first = false;  // the file is counted here
  FilePart part;       // of the file
  int64_t bytes = 0;   // of the file that count as this part's work
};

struct TokenizePlan {
  std::vector<InputPart> inputs;  // in the order given
  int64_t all_bytes = 0;          // of all inputs
  int pieces = 1;
};

// Looks at the inputs. Errors: no_input, usage.
TokenizePlan plan_tokenization(const TokenizeOptions& options, Share share);
// What a piece reads: the inputs, laid end to end, are cut into equal pieces. Compressed files and
// texts without a mark go to the piece that their first byte falls into.
std::vector<InputPart> parts_of(const TokenizePlan& plan, int piece);

}  // namespace trireme
