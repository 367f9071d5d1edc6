// Any bytes as PREFIX.bin; the first byte chooses the token type, the index is well-formed.
#include <array>

#include "fuzz/fuzz_input.hpp"
#include "trireme/data/indexed_writer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  if (size == 0) return 0;
  constexpr std::array kTypes{TokenType::u8,  TokenType::i8,  TokenType::i16,
                              TokenType::i32, TokenType::i64, TokenType::u16};
  const TokenType type = kTypes[data[0] % kTypes.size()];
  const std::string_view bin = fuzz::text_of(data + 1, size - 1);
  return fuzz::read_or_refuse([&] {
    const size_t count = bin.size() / static_cast<size_t>(token_bytes(type));
    IndexedDatasetWriter writer({scratch.path("set"), type, 7, false});
    writer.append(std::vector<int32_t>(count));
    writer.end_document();
    writer.commit();
    scratch.put("set.bin", bin);
    verify_dataset(scratch.path("set"), 100);
  });
}
