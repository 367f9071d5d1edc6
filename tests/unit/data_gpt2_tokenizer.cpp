// GPT-2's tokenizer: golden ids on the part of its vocabulary that they need, and on all of it
// where TRIREME_GPT2_DIR names a folder with vocab.json and merges.txt.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "data/byte_alphabet.hpp"
#include "support/data_files.hpp"
#include "support/gpt2_part.hpp"
#include "trireme/data/tokenizer.hpp"

namespace trireme {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_file;
using Ids = std::vector<int32_t>;
using Special = TokenizerOptions::Special;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

// Ids of single bytes: those that spell themselves first, then the others.
int byte_id(int byte) {
  int id = 0;
  const auto itself = [](int b) {
    return byte_alphabet_character(static_cast<unsigned char>(b)) < 0x100;
  };
  for (int b = 0; b < 256; ++b) id += itself(byte) ? itself(b) && b < byte : itself(b) || b < byte;
  return id;
}

// Writes vocab.json and merges.txt with GPT-2's own ids.
void write_part(const TempDir& dir) {
  std::string vocab = "{\"<|endoftext|>\": 50256", merges = "#version: 0.2\n";
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    vocab += ",\n" + quoted(spelling_of_bytes(std::string_view(&text, 1))) + ": " +
             std::to_string(byte_id(byte));
  }
  std::istringstream lines(test::kGpt2Merges);
  for (std::string left, right, id; lines >> left >> right >> id;) {
    vocab += ",\n" + quoted(left + right) + ": " + id;
    merges += left + " " + right + "\n";
  }
  write_file(dir / "vocab.json", vocab + "}");
  write_file(dir / "merges.txt", merges);
}

void expect_golden(const std::string& path) {
  const auto plain = make_tokenizer(path),
             marks = make_tokenizer(path, {.special = Special::marks});
  for (const test::GoldenText& golden : test::gpt2_golden()) {
    Ids ids{-7};
    (golden.marks ? marks : plain)->encode(golden.text, ids);
    EXPECT_EQ(ids[0], -7);
    ids.erase(ids.begin());
    EXPECT_EQ(ids, golden.ids) << golden.text;
    std::string back;
    plain->decode(ids, back);
    EXPECT_EQ(back, golden.text);
  }
}

TEST(Gpt2Tokenizer, GoldenIdsOnItsPart) {
  const TempDir dir;
  write_part(dir);
  expect_golden(dir / "");
  EXPECT_EQ(make_tokenizer(dir / "vocab.json")->vocab(), 50257);
  EXPECT_EQ(make_tokenizer(dir / "vocab.json")->end_of_document(), 50256);
}

TEST(Gpt2Tokenizer, GoldenIdsOnAllOfIt) {
  const char* folder = std::getenv("TRIREME_GPT2_DIR");
  if (folder == nullptr) GTEST_SKIP() << "TRIREME_GPT2_DIR names no folder with GPT-2's files";
  expect_golden(folder);
  EXPECT_EQ(make_tokenizer(folder)->vocab(), 50257);
}

TEST(Gpt2Tokenizer, BytesThatAreNotUtf8GetIdsOfTheirOwnAndComeBack) {
  const TempDir dir;
  write_part(dir);
  const auto tokenizer = make_tokenizer(dir / "");
  std::string text = "the \xFF\xFEquick";
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  text += "caf\xC3";                                 // cut inside a character
  text += "\xED\xA0\x80 \xC0\xAF \xF4\x90\x80\x80";  // a surrogate, an overlong form, too large
  Ids ids;
  tokenizer->encode(text, ids);
  std::string back;
  tokenizer->decode(ids, back);
  EXPECT_EQ(back, text);
  // The valid text around a bad byte is cut as if it stood alone.
  Ids around, parts;
  tokenizer->encode("the\xFFquick", around);
  tokenizer->encode("the", parts);
  parts.push_back(byte_id(0xFF));
  tokenizer->encode("quick", parts);
  EXPECT_EQ(around, parts);
}

TEST(Gpt2Tokenizer, ACloneGivesTheSameIds) {
  const TempDir dir;
  write_part(dir);
  const auto first = make_tokenizer(dir / ""), second = first->clone();
  Ids a, b;
  first->encode("The quick brown fox", a);
  second->encode("The quick brown fox", b);
  EXPECT_EQ(a, (Ids{464, 2068, 7586, 21831}));
  EXPECT_EQ(a, b);
}

TEST(Gpt2Tokenizer, UnknownIdsAreRefused) {
  const TempDir dir;
  write_part(dir);
  const auto tokenizer = make_tokenizer(dir / "");
  std::string text;
  for (int32_t id : {-1, 50257, 256 + 49999})  // the last has no token in this part
    expect_error(ExitCode::bad_data, {"no token has the id", std::to_string(id)},
                 [&] { tokenizer->decode(Ids{id}, text); });
  EXPECT_EQ(text, "");
}

TEST(Gpt2Tokenizer, DamagedFilesAreRefusedByPlace) {
  const TempDir dir;
  write_part(dir);
  const auto with = [&](const std::string& vocab, const std::string& merges,
                        const std::vector<std::string>& words) {
    write_file(dir / "vocab.json", vocab);
    write_file(dir / "merges.txt", merges);
    expect_error(ExitCode::bad_data, words, [&] { make_tokenizer(dir / ""); });
  };
  const std::string good = R"({"a": 0, "b": 1, "ab": 2})";
  with("{\"a\": 0", "", {"vocab.json", "not JSON"});
  with("[1]", "", {"vocab.json", "object"});
  with(R"({"a": 0, "a": 1})", "", {"vocab.json", "\"a\"", "twice"});
  with(R"({"a": 0, "b": 0})", "", {"id 0", "\"a\"", "\"b\""});
  with(R"({"a": -1})", "", {"\"a\"", "-1"});
  with(R"({"a": 4194304})", "", {"\"a\"", "4194304"});
  with(R"({"a": 18446744073709551615})", "", {"\"a\"", "not a whole number"});
  with(R"({"a": 1.5})", "", {"\"a\"", "not a whole number"});
  with(R"({"": 0})", "", {"empty"});
  with(good, "#version: 0.2\na b\na b\n", {"merge 1", "twice"});
  with(good, "a  b\n", {"merges.txt:1", "one space"});
  with(good, "a b\n\na b\n", {"merges.txt:2", "one space"});
  with(good, "ab\n", {"merges.txt:1"});
  with(good, "a c\n", {"merge 0", "\"ac\"", "not in the vocabulary"});
  std::filesystem::remove(dir / "merges.txt");
  expect_error(ExitCode::no_input, {"merges.txt"}, [&] { make_tokenizer(dir / ""); });
}

TEST(Gpt2Tokenizer, AnotherFamilysPairOfFilesIsRefused) {
  const TempDir dir;
  write_part(dir);
  write_file(dir / "tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  expect_error(ExitCode::bad_data, {"Qwen2Tokenizer", "tokenizer.json"},
               [&] { make_tokenizer(dir / ""); });
}

TEST(Gpt2Tokenizer, TheTokenThatEndsADocument) {
  const TempDir dir;
  write_part(dir);
  EXPECT_EQ(make_tokenizer(dir / "", {.end_of_document = "the"})->end_of_document(), 1169);
  expect_error(ExitCode::bad_data, {"<eos>"},
               [&] { make_tokenizer(dir / "", {.end_of_document = "<eos>"}); });
  write_file(dir / "tokenizer_config.json", R"({"eos_token": {"content": "The"}})");
  EXPECT_EQ(make_tokenizer(dir / "")->end_of_document(), 464);
  write_file(dir / "tokenizer_config.json", "{}");
  write_file(dir / "vocab.json", R"({"a": 0})");
  write_file(dir / "merges.txt", "#version: 0.2\n");
  const auto without = make_tokenizer(dir / "");
  expect_error(ExitCode::bad_data, {"no token that ends a document"},
               [&] { without->end_of_document(); });
  Ids ids;
  expect_error(ExitCode::bad_data, {"no token for byte 0x62"}, [&] { without->encode("ab", ids); });
}

}  // namespace
}  // namespace trireme
