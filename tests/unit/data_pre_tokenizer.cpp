// Cutting text into words by the published patterns, by literals, and by the other steps.
#include "data/pre_tokenizer.hpp"

#include <gtest/gtest.h>

#include "data/utf8.hpp"
#include "support/data_files.hpp"

namespace trireme {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

Texts cut(const PreTokenizer& pre, std::string_view text, bool first = true) {
  Texts pieces;
  const auto sink = [&](std::string_view piece) { pieces.emplace_back(piece); };
  pre.split(text, first, sink);
  return pieces;
}

Texts cut(const char* pattern, std::string_view text) {
  return cut(PreTokenizer({SplitStep{Regex(pattern)}}), text);
}

TEST(PreTokenizer, Gpt2Pattern) {
  EXPECT_EQ(cut(kGpt2Pattern, "I'm DON'T  stop\n\n now"),
            (Texts{"I", "'m", " DON", "'", "T", " ", " stop", "\n\n", " now"}));
  EXPECT_EQ(cut(kGpt2Pattern, "a1² ½Ⅷ_b"), (Texts{"a", "1²", " ½Ⅷ", "_", "b"}));
  EXPECT_EQ(cut(kGpt2Pattern, "e\u0301x"), (Texts{"e", "\u0301", "x"}));
  EXPECT_EQ(cut(kGpt2Pattern, "trailing   "), (Texts{"trailing", "   "}));
}

TEST(PreTokenizer, Llama3AndQwen2Patterns) {
  EXPECT_EQ(cut(kLlama3Pattern, "I'M DON'T"), (Texts{"I", "'M", " DON", "'T"}));
  EXPECT_EQ(cut(kLlama3Pattern, "1234567 89"), (Texts{"123", "456", "7", " ", "89"}));
  EXPECT_EQ(cut(kQwen2Pattern, "123 4"), (Texts{"1", "2", "3", " ", "4"}));
  EXPECT_EQ(cut(kLlama3Pattern, "x = 1;\n\n\n  y\tz"),
            (Texts{"x", " =", " ", "1", ";\n\n\n", " ", " y", "\tz"}));
  EXPECT_EQ(cut(kLlama3Pattern, "  \n  "), (Texts{"  \n", "  "}));
  EXPECT_EQ(cut(kO200kPattern, "camelCase's/\n"), (Texts{"camel", "Case's", "/\n"}));
}

// White_Space exactly: U+180E, U+200B, U+FEFF and U+001C are none, U+0085 and U+2028 are.
TEST(PreTokenizer, WhitespaceIsUnicodes) {
  for (const char* space : {"\t", "\v", "\u0085", "\u00a0", "\u1680", "\u2000", "\u200a", "\u2028",
                            "\u202f", "\u205f", "\u3000"})
    EXPECT_EQ(cut("\\s", std::string("a") + space + "b"), (Texts{"a", space, "b"}));
  for (const char* other : {"\u180e", "\u200b", "\ufeff", "\x1c"})
    EXPECT_EQ(cut("\\s", std::string("a") + other + "b"), (Texts{std::string("a") + other + "b"}));
}

TEST(PreTokenizer, PiecesTileTheText) {
  std::string text;
  for (int i = 0; i < 4000; ++i)
    utf8_append(static_cast<uint32_t>((i * 7919 + i * i * 31) % (i % 3 ? 128 : 0xD000)), text);
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kO200kPattern}) {
    std::string joined;
    for (const std::string& piece : cut(pattern, text)) joined += piece;
    EXPECT_EQ(joined, text);
  }
}

TEST(PreTokenizer, LongRunsAreLinear) {
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kO200kPattern})
    for (const char* unit : {" ", "\n", "a", "A", ".", "\u00e9"}) {
      std::string text;
      for (int i = 0; i < 1'000'000; ++i) text += unit;
      EXPECT_EQ(cut(pattern, text), Texts{text});
    }
}

TEST(PreTokenizer, Behaviors) {
  const auto with = [](SplitBehavior behavior, bool invert = false) {
    return cut(PreTokenizer({SplitStep{Regex("-"), behavior, invert}}), "a--b-");
  };
  EXPECT_EQ(with(SplitBehavior::isolated), (Texts{"a", "-", "-", "b", "-"}));
  EXPECT_EQ(with(SplitBehavior::removed), (Texts{"a", "b"}));
  EXPECT_EQ(with(SplitBehavior::removed, true), (Texts{"-", "-", "-"}));
  EXPECT_EQ(with(SplitBehavior::merged_with_previous), (Texts{"a-", "-", "b-"}));
  EXPECT_EQ(with(SplitBehavior::merged_with_next), (Texts{"a", "-", "-b", "-"}));
}

TEST(PreTokenizer, StepsFollowEachOther) {
  const PreTokenizer digits(
      {SplitStep{Regex("\\p{N}")}, PrefixSpaceStep{}, SplitStep{Regex(kGpt2Pattern)}});
  EXPECT_EQ(cut(digits, "ab12 c"), (Texts{" ab", " 1", " 2", " c"}));
  const auto metaspace = [](MetaspaceStep::Prepend prepend, bool split) {
    return PreTokenizer({MetaspaceStep{"_", prepend, split}});
  };
  using Prepend = MetaspaceStep::Prepend;
  EXPECT_EQ(cut(metaspace(Prepend::always, true), "a  b"), (Texts{"_a", "_", "_b"}));
  EXPECT_EQ(cut(metaspace(Prepend::always, false), "a b"), Texts{"_a_b"});
  EXPECT_EQ(cut(metaspace(Prepend::never, true), "a b"), (Texts{"a", "_b"}));
  EXPECT_EQ(cut(metaspace(Prepend::first, true), "a b", true), (Texts{"_a", "_b"}));
  EXPECT_EQ(cut(metaspace(Prepend::first, true), "a b", false), (Texts{"a", "_b"}));
  EXPECT_EQ(cut(metaspace(Prepend::always, true), " a"), (Texts{"_a"}));
}

TEST(Regex, RefusesWhatMeansSomethingElse) {
  const auto refused = [](const std::string& pattern, const std::string& word) {
    expect_error(ExitCode::bad_data, {pattern, word}, [&] { Regex{pattern}; });
  };
  refused("[^(\\s|[.,])]+", "class inside another");
  refused("[a-z&&[aeiou]]", "intersection");
  refused("[\\S]", "in a class");
  refused("\\bword", "\\b");
  refused("(a", "parenthesis");
  refused("a\\", "backslash");
  refused("\\u12", "\\u");
  EXPECT_TRUE(Regex("\\u00e9").find("caf\u00e9", 0).found);
  EXPECT_TRUE(Regex::literal("a.[b]*\u00e9").find("xa.[b]*\u00e9", 0).found);
  EXPECT_FALSE(Regex::literal("a.c").find("abc", 0).found);
}

TEST(Regex, GivesUpOnAPatternThatWouldTakeForever) {
  const std::string text(5000, 'a');
  expect_error(ExitCode::bad_data, {"gave up"}, [&] { Regex("(a|aa)+[0-9]").find(text, 0); });
}

TEST(Utf8, AcceptsExactlyWhatUnicodeDefines) {
  std::string every;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string one;
    utf8_append(c, one);
    ASSERT_EQ(utf8_character(one), one.size()) << c;
    ASSERT_EQ(utf8_code_point(one), c);
    if (c % 97 == 0) every += one;
  }
  EXPECT_EQ(utf8_valid_prefix(every), every.size());
  for (const char* bad :
       {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xC3"}) {
    EXPECT_EQ(utf8_character(bad), 0u) << bad;
    EXPECT_EQ(utf8_valid_prefix(std::string("0123456789") + bad), 10u);
    EXPECT_EQ(utf8_invalid_prefix(std::string(bad) + "abc"), std::string(bad).size());
  }
}

}  // namespace
}  // namespace trireme
