// Any bytes as a SentencePiece model; what is accepted must encode and decode.
#include "fuzz/tokenizer_use.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const std::string path = scratch.put("tokenizer.model", fuzz::text_of(data, size));
  return fuzz::read_or_refuse([&] { fuzz::use_tokenizer(path); });
}
