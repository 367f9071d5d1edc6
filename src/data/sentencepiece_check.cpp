// Walks the wire format (protobuf.dev/programming-guides/encoding) of sentencepiece_model.proto:
// ModelProto has pieces (1), a trainer's (2), normalizer's (3) and denormalizer's (5)
// specification; a piece has a text (1) and a score (2); a normalizer has a table (2).
#include "data/sentencepiece_check.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <unordered_set>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class Message {
 public:
  // `begin` is the place of `bytes` in the file.
  Message(std::string_view bytes, size_t begin, const std::string& path)
      : bytes_(bytes), begin_(begin), path_(path) {}

  struct Field {
    uint64_t number = 0;
    unsigned wire = 0;      // 0: a number, 1: 8 bytes, 2: bytes, 5: 4 bytes
    std::string_view body;  // of wire types 1, 2 and 5
    size_t begin = 0;       // of the body, in the file
  };
  // False at the end.
  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = number();
    field.number = tag >> 3;
    field.wire = static_cast<unsigned>(tag & 7);
    if (field.number == 0 || (field.wire > 2 && field.wire != 5)) damaged("no field begins here");
    size_t length = field.wire == 1 ? 8 : field.wire == 5 ? 4 : 0;
    if (field.wire == 0) number();
    if (field.wire == 2) {
      const uint64_t said = number();
      if (said > bytes_.size() - at_) damaged("a field is longer than what holds it");
      length = static_cast<size_t>(said);
    }
    if (length > bytes_.size() - at_) damaged("it ends inside a field");
    field.body = bytes_.substr(at_, length);
    field.begin = begin_ + at_;
    at_ += length;
    return true;
  }
  [[noreturn]] void damaged(std::string_view why) const {
    fail(ExitCode::bad_data, "{}: byte {}: no SentencePiece model: {}", path_, begin_ + at_, why);
  }

 private:
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) damaged("it ends inside a number");
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged("a number is too long");
  }

  std::string_view bytes_;
  size_t begin_, at_ = 0;
  const std::string& path_;
};

uint32_t load32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// Text of a piece.
std::string_view check_piece(Message piece) {
  std::string_view text;
  for (Message::Field field; piece.next(field);) {
    if (field.number == 1) {
      if (field.wire != 2) piece.damaged("the text of a piece is no text");
      text = field.body;
    }
    if (field.number == 2) {
      if (field.wire != 5) piece.damaged("the score of a piece is no number");
      float score = 0;
      std::memcpy(&score, field.body.data(), sizeof(score));
      if (!std::isfinite(score)) piece.damaged("the score of a piece is not finite");
    }
  }
  if (text.empty() || text.find('\0') != std::string_view::npos)
    piece.damaged("a piece is empty or holds a NUL");
  return text;
}

// The table of a normalizer: the size of a double-array trie (Yata's darts-clone), the trie, and
// the texts, each with a NUL behind it, that its values point to.
void check_table(std::string_view table, const Message& where) {
  if (table.empty()) return;
  if (table.size() <= 4 || load32(table, 0) >= table.size() - 4)
    where.damaged("the normalizer's table is cut");
  const size_t trie_bytes = load32(table, 0), units = trie_bytes / 4;
  const std::string_view trie = table.substr(4, trie_bytes), texts = table.substr(4 + trie_bytes);
  if (trie_bytes % 1024 != 0 || units == 0 || texts.empty() || texts.back() != '\0')
    where.damaged("the normalizer's table is cut");
  for (size_t i = 0; i < units; ++i) {
    const uint32_t unit = load32(trie, 4 * i);
    if (unit >> 31 != 0) continue;  // a value
    const size_t next = i ^ (static_cast<size_t>(unit >> 10) << ((unit & 512) >> 6));
    const bool inside = (next | 255) < units;
    const bool value = inside && (unit & 256) != 0;
    if (!inside || (value && (load32(trie, 4 * next) & 0x7FFFFFFF) >= texts.size()))
      where.damaged("the normalizer's table points outside itself");
  }
}

void check_normalizer(Message normalizer) {
  for (Message::Field field; normalizer.next(field);) {
    if (field.number != 2) continue;
    if (field.wire != 2) normalizer.damaged("the normalizer's table is no bytes");
    check_table(field.body, normalizer);
  }
}

}  // namespace

void check_sentencepiece_model(std::string_view bytes, const std::string& path) {
  Message model(bytes, 0, path);
  std::unordered_set<std::string_view> pieces;
  for (Message::Field field; model.next(field);) {
    const bool known = field.number == 1 || field.number == 3 || field.number == 5;
    if (known && field.wire != 2) model.damaged("a part is of another type");
    if (field.number == 1 && !pieces.insert(check_piece({field.body, field.begin, path})).second)
      model.damaged("a piece comes twice");
    if (field.number == 3 || field.number == 5) check_normalizer({field.body, field.begin, path});
  }
  if (pieces.empty()) model.damaged("it has no pieces");
}

}  // namespace trireme
