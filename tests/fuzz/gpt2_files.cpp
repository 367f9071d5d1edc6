// Any bytes as vocab.json and, behind the first NUL, merges.txt.
#include "fuzz/tokenizer_use.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const std::string_view all = fuzz::text_of(data, size);
  const size_t cut = std::min(all.find('\0'), all.size());
  const std::string path = scratch.put("vocab.json", all.substr(0, cut));
  scratch.put("merges.txt", cut == all.size() ? "" : all.substr(cut + 1));
  return fuzz::read_or_refuse([&] { fuzz::use_tokenizer(path); });
}
