// UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// Bytes of the character at the start of `text`; 0 where no valid character starts there.
size_t utf8_character(std::string_view text);

// Bytes of the longest start of `text` that is valid.
size_t utf8_valid_prefix(std::string_view text);

// Bytes at the start of `text` that belong to no valid character; 0 where one starts there.
size_t utf8_invalid_prefix(std::string_view text);

// Appends U+0000 ... U+10FFFF.
void utf8_append(uint32_t code_point, std::string& text);

// The code point of the valid character at the start of `text`.
uint32_t utf8_code_point(std::string_view text);

}  // namespace trireme
