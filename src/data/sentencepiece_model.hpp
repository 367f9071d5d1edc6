// SentencePiece models, where the build found the library.
#pragma once

#include <memory>
#include <string>

#include "trireme/data/tokenizer.hpp"

namespace trireme {

// Errors: bad_data where the file is no model, or where the build has no SentencePiece.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path,
                                              const TokenizerOptions& options);

}  // namespace trireme
