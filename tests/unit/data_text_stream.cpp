// Text that comes token by token: only whole characters, every byte accounted for.
#include <gtest/gtest.h>

#include "trireme/data/text_stream.hpp"

namespace trireme {
namespace {

// As SentencePiece: token n is the n-th word with a space in front, which is not written at the
// start of a text.
class WordTokenizer : public ByteTokenizer {
 public:
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) text += ' ';
      text += "w" + std::to_string(ids[i]);
    }
  }
};

// As a tokenizer with byte tokens that writes U+FFFD for a character that lacks some: id 1 and 2
// together are "é", other ids are letters.
class PatchingTokenizer : public ByteTokenizer {
 public:
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == 1 && i + 1 < ids.size() && ids[i + 1] == 2) {
        text += "\xC3\xA9";
        ++i;
      } else {
        text +=
            ids[i] < 3 ? std::string("\xEF\xBF\xBD") : std::string(1, static_cast<char>(ids[i]));
      }
    }
  }
};

std::vector<std::string> pieces(std::string_view bytes, InvalidBytes invalid) {
  const ByteTokenizer tokenizer;
  TextStream stream(tokenizer, {}, invalid);
  std::vector<std::string> result;
  for (const char byte : bytes) result.push_back(stream.push(static_cast<unsigned char>(byte)));
  result.push_back(stream.finish());
  return result;
}

using Pieces = std::vector<std::string>;

TEST(TextStream, CharactersComeWhole) {
  EXPECT_EQ(pieces("a\xC3\xA9z", InvalidBytes::replace), (Pieces{"a", "", "\xC3\xA9", "z", ""}));
  EXPECT_EQ(pieces("\xF0\x9F\x98\x80", InvalidBytes::replace),
            (Pieces{"", "", "", "\xF0\x9F\x98\x80", ""}));
}

TEST(TextStream, BytesOfNoCharacterAreReplaced) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(pieces("\xFF"
                   "a",
                   InvalidBytes::replace),
            (Pieces{r, "a", ""}));
  EXPECT_EQ(pieces("\x80", InvalidBytes::replace), (Pieces{r, ""}));
  EXPECT_EQ(pieces("\xC3"
                   "a",
                   InvalidBytes::replace),
            (Pieces{"", r + "a", ""}));
  EXPECT_EQ(pieces("\xE0\x80", InvalidBytes::replace), (Pieces{"", r + r, ""}));  // overlong
  EXPECT_EQ(pieces("\xED\xA0\x80", InvalidBytes::replace),
            (Pieces{"", r + r, r, ""}));                                          // surrogate
  EXPECT_EQ(pieces("\xF4\x90", InvalidBytes::replace), (Pieces{"", r + r, ""}));  // above U+10FFFF
  EXPECT_EQ(pieces("x\xF0\x9F", InvalidBytes::replace), (Pieces{"x", "", "", r + r}));  // cut
}

TEST(TextStream, BytesAreKept) {
  EXPECT_EQ(pieces("\xFF\xC3"
                   "a",
                   InvalidBytes::keep),
            (Pieces{"\xFF", "\xC3", "a", ""}));
}

TEST(TextStream, EveryByteOfEveryPairIsThere) {
  const ByteTokenizer tokenizer;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      TextStream stream(tokenizer, {}, InvalidBytes::replace);
      const std::string both = {static_cast<char>(a), static_cast<char>(b)};
      std::string text = stream.push(a);
      text += stream.push(b);
      text += stream.finish();
      ASSERT_EQ(text, as_utf8(both)) << a << " " << b;
    }
  }
}

TEST(TextStream, APromptGoesBefore) {
  const WordTokenizer tokenizer;
  const std::vector<int32_t> prompt = {7, 8};
  TextStream stream(tokenizer, prompt, InvalidBytes::replace);
  EXPECT_EQ(stream.push(9), " w9");
  TextStream alone(tokenizer, {}, InvalidBytes::replace);
  EXPECT_EQ(alone.push(9), "w9");
  // Far beyond the tokens that are decoded together, and a prompt longer than these.
  std::string text, want;
  for (int32_t i = 0; i < 500; ++i) {
    text += stream.push(i);
    want += " w" + std::to_string(i);
  }
  EXPECT_EQ(text + stream.finish(), want);
  TextStream behind(tokenizer, std::vector<int32_t>(200, 3), InvalidBytes::replace);
  EXPECT_EQ(behind.push(1), " w1");
}

TEST(TextStream, WaitsForATokenizerThatPatches) {
  const PatchingTokenizer tokenizer;
  TextStream stream(tokenizer, {}, InvalidBytes::replace);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(2), "\xC3\xA9");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push('b'),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(TextStream, EndOfADocumentHasNoText) {
  const ByteTokenizer tokenizer;
  TextStream stream(tokenizer, {}, InvalidBytes::replace);
  EXPECT_EQ(stream.push(ByteTokenizer::kEndOfDocument), "");
  EXPECT_EQ(stream.push('a'), "a");
}

}  // namespace
}  // namespace trireme
