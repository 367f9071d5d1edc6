// Tokens that are cut out of the text before the model sees it: marks and other added tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/regex.hpp"

namespace trireme {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // a mark, not text
  bool single_word = false;  // only between characters that belong to no word
  bool lstrip = false;       // takes the whitespace before it
  bool rstrip = false;       // takes the whitespace behind it
  bool normalized = false;   // looked for in the normalized text, else in the raw text
};

// Finds added tokens: leftmost first, the longest of those that start together. One thread at a
// time; a copy may be used beside it.
class AddedTokens {
 public:
  struct Piece {
    size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;  // null: text
  };

  // `special_as_text`: marks in the text are passed over as ordinary text.
  AddedTokens(std::vector<AddedToken> tokens, bool special_as_text);
  AddedTokens(const AddedTokens& other);
  AddedTokens& operator=(const AddedTokens&) = delete;

  bool empty() const { return tokens_.empty(); }
  // Cuts `text` (valid UTF-8) into tokens and what lies between them.
  void cut(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  struct Group {  // tokens with the same first byte, longest first
    std::vector<uint32_t> members;
    std::string common;  // what all of them start with
  };
  const AddedToken* match(std::string_view text) const;
  bool stands_alone(std::string_view text, size_t begin, size_t end) const;
  size_t space_before(std::string_view text) const;
  size_t space_behind(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  bool special_as_text_;
  std::array<int16_t, 256> group_of_{};  // -1: no token starts with this byte
  std::vector<Group> groups_;
  Regex word_, space_;
};

}  // namespace trireme
