// Opens a tokenizer and puts some text and some ids through it.
#pragma once

#include "fuzz/fuzz_input.hpp"
#include "trireme/data/tokenizer.hpp"

namespace trireme::fuzz {

inline void use_tokenizer(const std::string& path) {
  const auto tokenizer = make_tokenizer(path);
  for (const std::string_view text :
       {"", "a", "ab abc  don't 123 caf\xC3\xA9 <|endoftext|>\n\n x", "\xFF\x00\xC3 \xE2\x82 z"}) {
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocab()) std::abort();
    std::string back;
    tokenizer->decode(ids, back);
  }
  for (const int32_t id : {-1, 0, 1, 255, 1 << 30}) {
    std::string back;
    try {
      tokenizer->decode(std::span(&id, 1), back);
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_data) throw;
    }
  }
}

}  // namespace trireme::fuzz
