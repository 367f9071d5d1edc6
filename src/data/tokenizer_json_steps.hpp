// The parts of tokenizer.json around the model: normalizer, pre-tokenizer, decoder, template.
#pragma once

#include <vector>

#include "data/json_value.hpp"
#include "data/tokenizer_parts.hpp"

namespace trireme {

std::vector<NormalizerStep> read_normalizer(const JsonValue& value);

struct PreTokenizerParts {
  std::vector<PreTokenizerStep> steps;
  bool byte_level = false;
};
PreTokenizerParts read_pre_tokenizer(const JsonValue& value);

Decoder read_decoder(const JsonValue& value, bool byte_level);

struct DocumentMarks {
  std::vector<int32_t> start, end;
};
// Ids of a template are checked against what `parts` has.
DocumentMarks read_post_processor(const JsonValue& value, const BpeParts& parts);

}  // namespace trireme
