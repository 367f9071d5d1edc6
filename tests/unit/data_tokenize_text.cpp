// Plain text to tokens: marks, line ends, empty documents, long lines.
#include "trireme/data/tokenize_text.hpp"

#include <gtest/gtest.h>

#include "support/data_files.hpp"

namespace trireme {
namespace {

using test::expect_error;
using test::read_file;
using test::read_sequence;
using test::TempDir;
using test::write_file;
using Texts = std::vector<std::string>;

class TokenizeText : public ::testing::Test {
 protected:
  // Tokenizes the texts as files and gives the documents back as text; each must end with one 256.
  Texts run(const Texts& files, std::optional<std::string> mark = std::nullopt) {
    options_.inputs.clear();
    for (const std::string& text : files) {
      options_.inputs.push_back(dir_ / ("in" + std::to_string(options_.inputs.size())));
      write_file(options_.inputs.back(), text);
    }
    options_.output = dir_ / "out";
    options_.tokenizer = tokenizer_.get();
    options_.document_mark = std::move(mark);
    report_ = tokenize_text_files(options_);
    return documents();
  }
  Texts documents() const {
    const IndexedDataset dataset(dir_ / "out", 257);
    EXPECT_EQ(dataset.type(), TokenType::u16);
    EXPECT_EQ(dataset.documents(), report_.documents);
    EXPECT_EQ(dataset.sequences().count(), report_.documents);
    EXPECT_EQ(dataset.tokens(), report_.tokens);
    Texts texts;
    for (int64_t k = 0; k < dataset.documents(); ++k) {
      const std::vector<int32_t> ids = read_sequence(dataset, k);
      EXPECT_EQ(ids.back(), 256);
      std::string text;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        EXPECT_LT(ids[i], 256);
        text.push_back(static_cast<char>(ids[i]));
      }
      texts.push_back(text);
    }
    return texts;
  }

  TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer("bytes");
  TokenizeOptions options_;
  TokenizeReport report_;
};

TEST_F(TokenizeText, OneDocumentAFileWithoutAMark) {
  EXPECT_EQ(run({"a\n%\nb\n", "second"}), (Texts{"a\n%\nb\n", "second"}));
  EXPECT_EQ(report_.files, 2);
  EXPECT_EQ(report_.bytes, 12);
  EXPECT_EQ(report_.tokens, 14);
  EXPECT_EQ(report_.vocab, 257);
  EXPECT_EQ(report_.empty_documents, 0);
}

TEST_F(TokenizeText, MarkLinesCutAndAreDropped) {
  EXPECT_EQ(run({"one\ntwo\n%\nthree\n%\n"}, "%"), (Texts{"one\ntwo\n", "three\n"}));
  EXPECT_EQ(report_.empty_documents, 0);
}

TEST_F(TokenizeText, OnlyAWholeLineIsAMark) {
  const std::string text = "100%\n%%\n % \n%x\nx%\n";
  EXPECT_EQ(run({text}, "%"), Texts{text});
}

TEST_F(TokenizeText, LastLineNeedsNoEnd) {
  EXPECT_EQ(run({"one\n%\ntwo", "three\n%"}, "%"), (Texts{"one\n", "two", "three\n"}));
}

TEST_F(TokenizeText, ADocumentEndsWithItsFile) {
  EXPECT_EQ(run({"one\n", "two\n%\n"}, "%"), (Texts{"one\n", "two\n"}));
}

TEST_F(TokenizeText, LineEndsAreKeptAndMarksMayHaveEither) {
  EXPECT_EQ(run({"one\r\n%\r\ntwo\r\n%\r"}, "%"), (Texts{"one\r\n", "two\r\n"}));
  EXPECT_EQ(run({"%\r\r\nx"}, "%"), Texts{"%\r\r\nx"});
}

TEST_F(TokenizeText, EmptyDocumentsAreLeftOutAndCounted) {
  EXPECT_EQ(run({"%\n%\none\n%\n%\n", "", "\n%\n"}, "%"), (Texts{"one\n", "\n"}));
  EXPECT_EQ(report_.empty_documents, 4);  // two before "one", one after it, the empty file
}

TEST_F(TokenizeText, AnyBytesAreKept) {
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  EXPECT_EQ(run({text}), Texts{text});
  EXPECT_EQ(run({text + "\n%\n" + text}, "%"), (Texts{text + "\n", text}));
}

// Chunks are 1 MiB: marks, long lines and line ends are moved over the border byte by byte.
TEST_F(TokenizeText, ChunkBordersDoNotMatter) {
  for (const std::string& end : Texts{"\n", "\r\n"})
    for (size_t before = (1 << 20) - 8; before <= (1 << 20) + 1; ++before) {
      const std::string first = std::string(before, 'x') + "\n";
      EXPECT_EQ(run({first + "==" + end + "==tail\n==" + end + "end"}, "=="),
                (Texts{first, "==tail\n", "end"}))
          << before;
    }
}

TEST_F(TokenizeText, ProgressReachesTheEnd) {
  int64_t last = 0;
  options_.progress = [&](int64_t done, int64_t all) {
    EXPECT_EQ(all, (3 << 20) + 5 + 7);
    EXPECT_GT(done, last);
    last = done;
  };
  run({std::string((3 << 20) + 5, 'y'), "seven.."});
  EXPECT_EQ(last, (3 << 20) + 5 + 7);
}

// A tokenizer that must see a document whole.
class CountingTokenizer : public Tokenizer {
 public:
  int64_t vocab() const override { return 70000; }
  int32_t end_of_document() const override { return 69999; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    ids.push_back(static_cast<int32_t>(text.size() % 65521));
  }
  void decode(std::span<const int32_t>, std::string&) const override {}
  bool cuts_anywhere() const override { return false; }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<CountingTokenizer>();
  }
};

TEST_F(TokenizeText, OtherTokenizersGetWholeDocumentsAndWiderIds) {
  write_file(dir_ / "in", "one\ntwo\n%\n" + std::string((1 << 20) + 3, 'z'));
  const CountingTokenizer counting;
  tokenize_text_files({.inputs = {dir_ / "in"},
                       .output = dir_ / "out",
                       .tokenizer = &counting,
                       .document_mark = "%"});
  const IndexedDataset dataset(dir_ / "out", 70000);
  EXPECT_EQ(dataset.type(), TokenType::i32);
  EXPECT_EQ(read_sequence(dataset, 0), (std::vector<int32_t>{8, 69999}));
  EXPECT_EQ(read_sequence(dataset, 1), (std::vector<int32_t>{((1 << 20) + 3) % 65521, 69999}));
}

TEST_F(TokenizeText, ErrorsLeaveNothingBehind) {
  expect_error(ExitCode::bad_data, {"no document", "nothing was written"}, [&] { run({""}); });
  EXPECT_EQ(dir_.names(), Texts{"in0"});
  expect_error(ExitCode::usage, {"mark"}, [&] { run({"x"}, "%\n"); });
  expect_error(ExitCode::usage, {"mark"}, [&] { run({"x"}, ""); });
  expect_error(ExitCode::usage, {"no input"}, [&] { run({}); });
  options_.inputs = {dir_ / "in0", dir_ / "missing"};
  expect_error(ExitCode::no_input, {"missing"}, [&] { tokenize_text_files(options_); });
  EXPECT_EQ(dir_.names(), Texts{"in0"});
  expect_error(ExitCode::usage, {"klingon", "bytes"}, [] { make_tokenizer("klingon"); });
}

}  // namespace
}  // namespace trireme
