// The text of tokens as they come: whole characters only, whatever bytes the tokens stand for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer.hpp"

namespace trireme {

// What becomes of bytes that are no UTF-8.
enum class InvalidBytes : uint8_t {
  replace,  // each becomes U+FFFD
  keep,
};

class TextStream {
 public:
  // `before` are the tokens in front of the first one (a prompt), whose text is not given out: some
  // tokenizers write a token differently at the start of a text. The tokenizer outlives the stream.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before, InvalidBytes invalid);
  // The characters that `token` completes, in order; empty while one is incomplete.
  // Errors: bad_data for an id that no token has.
  std::string push(int32_t token);
  // What is left at the end.
  std::string finish();

 private:
  std::string release(bool all);
  const Tokenizer& tokenizer_;
  InvalidBytes invalid_;
  std::vector<int32_t> window_;  // the last tokens
  size_t taken_ = 0;             // bytes of the window's text that were given out or are held
  int waited_ = 0;               // tokens for which an unfinished text was awaited
  std::string held_;
};

// The text with each byte that belongs to no valid character replaced by U+FFFD.
std::string as_utf8(std::string_view text);

}  // namespace trireme
