#include "data/byte_alphabet.hpp"

#include <array>

#include "data/utf8.hpp"

namespace trireme {
namespace {

constexpr uint32_t kCharacters = 0x144;
constexpr uint16_t kNoByte = 0xFFFF;

constexpr bool spells_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<uint16_t, kCharacters> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(kNoByte);
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned character = spells_itself(byte) ? byte : next++;
    alphabet.character[byte] = static_cast<uint16_t>(character);
    alphabet.byte[character] = static_cast<uint16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.character[' '] == 0x120 && kAlphabet.character[0xAD] == 0x143);

}  // namespace

uint32_t byte_alphabet_character(unsigned char byte) {
  return kAlphabet.character[byte];
}

std::optional<std::string> bytes_of_spelling(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const size_t n = utf8_character(token);
    if (n == 0) return std::nullopt;
    const uint32_t character = utf8_code_point(token);
    if (character >= kCharacters || kAlphabet.byte[character] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[character]));
    token.remove_prefix(n);
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  for (char byte : bytes)
    utf8_append(kAlphabet.character[static_cast<unsigned char>(byte)], spelling);
  return spelling;
}

}  // namespace trireme
