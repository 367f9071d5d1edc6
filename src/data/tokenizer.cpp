// The tokenizers that need no files of their own.
#include "trireme/data/tokenizer.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  fail(ExitCode::usage, "unknown tokenizer \"{}\"; known: bytes", name);
}

}  // namespace trireme
