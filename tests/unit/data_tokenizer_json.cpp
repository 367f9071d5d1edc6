// tokenizer.json: byte-level and character models, added tokens, templates, refusals.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/byte_alphabet.hpp"
#include "support/data_files.hpp"
#include "trireme/data/tokenizer.hpp"

namespace trireme {
namespace {

using nlohmann::json;
using test::expect_error;
using test::TempDir;
using test::write_file;
using Ids = std::vector<int32_t>;
using Special = TokenizerOptions::Special;

// A byte-level model: ids 0 ... 255 are the bytes, then "ab", "abc", " a".
json byte_level_file() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    vocab[spelling_of_bytes(std::string_view(&text, 1))] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["\u0120a"] = 258;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "\u0120 a", "ab c"}}}}};
}

json added(int id, const std::string& content, bool special = true) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

// A character model as SentencePiece's, with byte tokens.
json character_file() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  const std::vector<std::string> pieces{"\u2581", "a", "b", "\u00e9", "ab", "\u2581ab"};
  for (const std::string& piece : pieces) vocab[piece] = static_cast<int>(vocab.size());
  const json prepend = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const json back = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  return {{"added_tokens", {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")}},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", {prepend, replace}}}},
          {"pre_tokenizer", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders", {back, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip}}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"unk_token", "<unk>"},
            {"merges", json::array({json::array({"a", "b"}), json::array({"\u2581", "ab"})})}}}};
}

class TokenizerJson : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const json& file, const TokenizerOptions& options = {}) {
    write_file(dir_ / "tokenizer.json", file.dump());
    return make_tokenizer(dir_ / "", options);
  }
  static Ids encode(const Tokenizer& tokenizer, std::string_view text) {
    Ids ids;
    tokenizer.encode(text, ids);
    return ids;
  }
  static std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
    std::string text;
    tokenizer.decode(ids, text);
    return text;
  }
  void refuse(const json& file, const std::vector<std::string>& words) {
    expect_error(ExitCode::bad_data, words, [&] { open(file); });
  }
  TempDir dir_;
};

TEST_F(TokenizerJson, ByteLevelModel) {
  const auto tokenizer = open(byte_level_file());
  EXPECT_EQ(tokenizer->vocab(), 259);
  EXPECT_EQ(encode(*tokenizer, "abcab ab a"), (Ids{257, 256, ' ', 256, 258}));
  EXPECT_EQ(encode(*tokenizer, "\xFF"), Ids{0xFF});
  EXPECT_EQ(decode(*tokenizer, {257, 258, 0xC3, 0xA9}), "abc a\u00e9");
}

TEST_F(TokenizerJson, MergesAsPairsAndIgnoredMerges) {
  json file = byte_level_file();
  file["model"]["merges"] = json::array({json::array({"a", "b"})});
  EXPECT_EQ(encode(*open(file), "abc"), (Ids{256, 'c'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(*open(file), "abc"), Ids{257});
  EXPECT_EQ(encode(*open(file), "abcd"), (Ids{256, 'c', 'd'}));
}

TEST_F(TokenizerJson, PrefixSpace) {
  json file = byte_level_file();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(encode(*open(file), "a a"), (Ids{258, 258}));
  EXPECT_EQ(encode(*open(file), " a"), Ids{258});
}

TEST_F(TokenizerJson, CharacterModelWithByteFallback) {
  const auto tokenizer = open(character_file());
  EXPECT_EQ(tokenizer->vocab(), 265);
  EXPECT_EQ(tokenizer->end_of_document(), 2);
  // "_ab_b" and a character that is not in the vocabulary, as its bytes.
  EXPECT_EQ(encode(*tokenizer, "ab b\u00e9"), (Ids{264, 259, 261, 262}));
  EXPECT_EQ(encode(*tokenizer, "\u20ac"), (Ids{259, 3 + 0xE2, 3 + 0x82, 3 + 0xAC}));
  for (const std::string text : {"ab b\u00e9", "  ab", "\u20ac\n\t", "a\xFF\xC3z"})
    EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text);
  EXPECT_EQ(encode(*tokenizer, ""), Ids{});
}

TEST_F(TokenizerJson, UnknownCharactersFuse) {
  json file = character_file();
  file["model"]["byte_fallback"] = false;
  EXPECT_EQ(encode(*open(file), "\u20ac\u20aca\u20ac"), (Ids{259, 0, 260, 0}));
  file["model"]["fuse_unk"] = false;
  EXPECT_EQ(encode(*open(file), "\u20ac\u20aca"), (Ids{259, 0, 0, 260}));
  file["model"].erase("unk_token");
  const auto tokenizer = open(file);
  expect_error(ExitCode::bad_data, {"no token for \"\u20ac\""},
               [&] { encode(*tokenizer, "a\u20ac"); });
}

TEST_F(TokenizerJson, AddedTokensAreCutOutLongestFirst) {
  json file = byte_level_file();
  file["added_tokens"] = {added(259, "<a>"), added(260, "<a>b", false), added(261, "<ab")};
  const auto marks = open(file, {.special = Special::marks});
  EXPECT_EQ(marks->vocab(), 262);
  EXPECT_EQ(encode(*marks, "a<a>b<a>a<ab"), (Ids{'a', 260, 259, 'a', 261}));
  // As text, marks are spelled out; other added tokens stay.
  EXPECT_EQ(encode(*open(file), "<a>b<a>"), (Ids{260, '<', 'a', '>'}));
  EXPECT_EQ(decode(*marks, {259, 'x', 261}), "<a>x<ab");
}

TEST_F(TokenizerJson, AddedTokensTakeWhitespaceAndStandAlone) {
  json file = byte_level_file();
  file["added_tokens"] = {added(259, "<l>"), added(260, "<r>"), added(261, "wz")};
  file["added_tokens"][0]["lstrip"] = true;
  file["added_tokens"][1]["rstrip"] = true;
  file["added_tokens"][2]["single_word"] = true;
  const auto tokenizer = open(file, {.special = Special::marks});
  EXPECT_EQ(encode(*tokenizer, "x \u3000<l> y"), (Ids{'x', 259, ' ', 'y'}));
  EXPECT_EQ(encode(*tokenizer, "x <r> \n<l>"), (Ids{'x', ' ', 260, 259}));
  EXPECT_EQ(encode(*tokenizer, "wz wzwz wz_ (wz)"),
            (Ids{261, ' ', 'w', 'z', 'w', 'z', ' ', 'w', 'z', '_', ' ', '(', 261, ')'}));
}

TEST_F(TokenizerJson, TemplateMarks) {
  json file = byte_level_file();
  file["added_tokens"] = {added(259, "<s>"), added(260, "</s>")};
  const auto piece = [](const char* kind, const char* id) {
    return json{{kind, {{"id", id}, {"type_id", 0}}}};
  };
  const json single = {piece("SpecialToken", "<s>"), piece("Sequence", "A"),
                       piece("SpecialToken", "</s>")};
  const json tokens = {{"<s>", {{"ids", {259}}}}, {"</s>", {{"ids", {260}}}}};
  const json template_step = {
      {"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
  file["post_processor"] = {{"type", "Sequence"},
                            {"processors", {{{"type", "ByteLevel"}}, template_step}}};
  const auto tokenizer = open(file);
  EXPECT_EQ(Ids(tokenizer->start_marks().begin(), tokenizer->start_marks().end()), Ids{259});
  EXPECT_EQ(Ids(tokenizer->end_marks().begin(), tokenizer->end_marks().end()), Ids{260});
  EXPECT_EQ(tokenizer->end_of_document(), 260);
  EXPECT_EQ(encode(*tokenizer, "ab"), Ids{256});
  file["post_processor"]["processors"][1]["special_tokens"]["<s>"]["ids"] = {300};
  refuse(file, {"post_processor", "300"});
}

TEST_F(TokenizerJson, UnsupportedPartsAreRefusedByName) {
  const auto with = [&](const char* part, const json& value,
                        const std::vector<std::string>& words) {
    json file = byte_level_file();
    file[part] = value;
    refuse(file, words);
  };
  with("version", "2.0", {"version", "2.0"});
  with("truncation", {{"max_length", 8}}, {"truncation", "null"});
  with("normalizer", {{"type", "Lowercase"}}, {"normalizer", "Lowercase"});
  with("pre_tokenizer", {{"type", "Whitespace"}}, {"pre_tokenizer", "Whitespace"});
  with("pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "[a[b]]"}}}, {"behavior", "Isolated"}},
       {"pre_tokenizer.pattern.Regex", "class inside"});
  with("pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Contiguous"}},
       {"behavior", "Contiguous"});
  with("decoder", {{"type", "WordPiece"}}, {"decoder"});
  with("post_processor", {{"type", "Wrapper"}}, {"post_processor", "Wrapper"});
  with("model", {{"type", "Unigram"}}, {"model", "Unigram"});
  with("model", {{"type", "WordPiece"}}, {"model", "WordPiece"});
  json file = byte_level_file();
  file["model"]["dropout"] = 0.1;
  refuse(file, {"model.dropout", "0.1"});
  file = byte_level_file();
  file["model"]["end_of_word_suffix"] = "</w>";
  refuse(file, {"end_of_word_suffix"});
}

TEST_F(TokenizerJson, DamagedFilesAreRefusedByPlace) {
  const auto with = [&](auto change, const std::vector<std::string>& words) {
    json file = byte_level_file();
    change(file);
    refuse(file, words);
  };
  with([](json& f) { f["model"]["vocab"]["ab"] = 1; }, {"id 1"});
  with([](json& f) { f["model"]["vocab"]["ab"] = "x"; }, {"model.vocab \"ab\"", "whole number"});
  with([](json& f) { f["model"]["vocab"] = 3; }, {"model.vocab", "not an object"});
  with([](json& f) { f["model"]["merges"] = {"a b", "b zz"}; }, {"merge 1", "bzz"});
  with([](json& f) { f["model"]["merges"] = {"a b c"}; }, {"merges[0]", "one space"});
  with(
      [](json& f) {
        f["model"]["merges"] = json::array({json::array({"a", "b", "c"})});
      },
      {"merges[0]", "pair"});
  with([](json& f) { f["model"]["merges"] = {7}; }, {"merges[0]", "text"});
  with([](json& f) { f["model"]["unk_token"] = "<unk>"; }, {"<unk>"});
  with([](json& f) { f["added_tokens"] = {added(300, "<s>")}; }, {"<s>", "300", "259"});
  with(
      [](json& f) {
        f["added_tokens"] = {added(259, "<s>"), added(260, "<s>")};
      },
      {"added_tokens[1]", "twice"});
  with([](json& f) { f["added_tokens"] = {added(259, "")}; }, {"added_tokens[0]"});
  with([](json& f) { f.erase("model"); }, {"model", "not an object"});
  const std::string text = byte_level_file().dump();
  for (size_t n = 0; n < text.size(); n += 211) {  // cut anywhere: refused, never a crash
    write_file(dir_ / "tokenizer.json", text.substr(0, n));
    expect_error(ExitCode::bad_data, {"tokenizer.json"}, [&] { make_tokenizer(dir_ / ""); });
  }
}

TEST_F(TokenizerJson, NormalizedAddedTokensAndForms) {
  json file = byte_level_file();
  file["normalizer"] = {{"type", "NFC"}};
  file["added_tokens"] = {added(259, "\u0151", false)};
  file["added_tokens"][0]["normalized"] = true;
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = open(file);
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();  // a build without ICU says so
  }
  EXPECT_EQ(encode(*tokenizer, "o\u030ba"), (Ids{259, 'a'}));
}

// Ranks of published sizes only: the file does not say how text is cut.
TEST(Tiktoken, RanksAndTheirFaults) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 3; ++i) lines += fmt::format("YQ== {}\n", i);
  write_file(dir / "x.tiktoken", lines);
  expect_error(ExitCode::bad_data, {"\"a\"", "0 and 1"},
               [&] { make_tokenizer(dir / "x.tiktoken"); });
  write_file(dir / "x.tiktoken", "YQ== 0\nYg== 1\n");
  expect_error(ExitCode::bad_data, {"2 ranks"}, [&] { make_tokenizer(dir / "x.tiktoken"); });
  for (const char* bad : {"YQ= 0\n", "YQ== x\n", "YQ==\n", "!Q== 0\n", "YQ== 1 2\n", "Y=== 1\n"}) {
    write_file(dir / "x.tiktoken", bad);
    expect_error(ExitCode::bad_data, {"x.tiktoken"}, [&] { make_tokenizer(dir / "x.tiktoken"); });
  }
}

TEST(Tiktoken, Llama3Golden) {
  const char* path = std::getenv("TRIREME_LLAMA3_MODEL");
  if (path == nullptr) GTEST_SKIP() << "TRIREME_LLAMA3_MODEL names no tokenizer.model of Llama 3";
  const auto tokenizer = make_tokenizer(path, {.special = Special::marks});
  const std::vector<std::pair<std::string, Ids>> golden{
      {"Hello world", {9906, 1917}},
      {"I'M DON'T", {40, 28703, 45373, 17773}},
      {"  two  spaces   three", {220, 1403, 220, 12908, 256, 2380}},
      {"line1\nline2\n\nline3", {1074, 16, 198, 1074, 17, 271, 1074, 18}},
      {"\t\ttabs", {197, 3324, 3518}},
      {"1234567890", {4513, 10961, 16474, 15}},
      {"3.14159 and 1,000", {18, 13, 9335, 2946, 323, 220, 16, 11, 931}},
      {"    def f(x):\n        return x\n", {262, 711, 282, 2120, 997, 286, 471, 865, 198}},
      {"x = 1;\n\n\n  y", {87, 284, 220, 16, 5322, 220, 379}},
      {"\r\n\r\n", {881}},
      {"  \n  ", {2355, 256}},
      {"caf\u00e9 na\u00efve", {936, 59958, 95980, 588}},
      {"\u65e5\u672c\u8a9e", {102433, 102158}},
      {"\u4f60\u597d\uff0c\u4e16\u754c", {57668, 53901, 3922, 102616}},
      {"\U0001f44b\U0001f30d", {9468, 239, 233, 9468, 234, 235}},
      {"\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", {54745, 28089, 8341, 115388}},
      {"<|begin_of_text|>Hi<|eot_id|>", {128000, 13347, 128009}}};
  for (const auto& [text, ids] : golden) {
    Ids found;
    tokenizer->encode(text, found);
    EXPECT_EQ(found, ids) << text;
    std::string back;
    tokenizer->decode(found, back);
    EXPECT_EQ(back, text);
  }
}

}  // namespace
}  // namespace trireme
