// Checks and converts UTF-8; runs of ASCII are passed eight bytes at a time.
#include "data/utf8.hpp"

#include <cstring>

namespace trireme {
namespace {

bool continues(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

// Bytes of ASCII at the start, in steps of eight.
size_t ascii_prefix(std::string_view text) {
  size_t n = 0;
  for (uint64_t word; n + 8 <= text.size(); n += 8) {
    std::memcpy(&word, text.data() + n, 8);
    if (word & 0x8080808080808080u) break;
  }
  return n;
}

}  // namespace

size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if (!continues(byte(i))) return 0;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool outside = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : n;
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    n += ascii_prefix(text.substr(n));
    for (size_t stop = n + 8; n < text.size() && n < stop;) {
      const size_t step = utf8_character(text.substr(n));
      if (step == 0) return n;
      n += step;
    }
  }
  return n;
}

size_t utf8_invalid_prefix(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && utf8_character(text.substr(n)) == 0) ++n;
  return n;
}

void utf8_append(uint32_t code_point, std::string& text) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

uint32_t utf8_code_point(std::string_view text) {
  const size_t n = utf8_character(text);
  if (n <= 1) return n == 0 ? 0 : static_cast<unsigned char>(text[0]);
  uint32_t value = static_cast<unsigned char>(text[0]) & (0x7Fu >> n);
  for (size_t i = 1; i < n; ++i) value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  return value;
}

}  // namespace trireme
