// GPT-2's spelling of bytes as printable characters, used in the vocabulary files of byte-level
// models: printable Latin-1 characters stand for themselves, the other 68 bytes, in increasing
// order, are U+0100, U+0101, ... U+0143.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

uint32_t byte_alphabet_character(unsigned char byte);  // its code point

// The bytes that a token spells; absent where it has a character outside the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view token);
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace trireme
