// A build without SentencePiece refuses its models.
#include "data/sentencepiece_model.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path, const TokenizerOptions&) {
  fail(ExitCode::bad_data,
       "{}: this build cannot read SentencePiece models: install the library (Debian: "
       "libsentencepiece-dev) and build again, or use the model's tokenizer.json",
       path);
}

}  // namespace trireme
