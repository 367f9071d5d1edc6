// The tokenizers that need no files of their own.
#include "trireme/data/tokenizer.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  ids.resize(before + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[before + i] = static_cast<unsigned char>(text[i]);
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  fail(ExitCode::usage, "unknown tokenizer \"{}\"; known: bytes", name);
}

}  // namespace trireme
