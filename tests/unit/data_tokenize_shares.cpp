// JSONL with awkward lines, compressed input, and the same bytes for any number of shares and
// threads.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "data/piece_map.hpp"
#include "support/data_files.hpp"
#include "support/run_shell.hpp"
#include "support/tokenize_shares.hpp"
#include "trireme/data/tokenize_text.hpp"

namespace trireme {
namespace {

using test::bytes_of;
using test::expect_error;
using test::read_file;
using test::read_sequence;
using test::run_shell;
using test::TempDir;
using test::write_file;
using Texts = std::vector<std::string>;

class TokenizeShares : public ::testing::Test {
 protected:
  TokenizeShares() {
    options_.tokenizer = tokenizer_.get();
    options_.output = dir_ / "out";
  }
  // The documents as text, without the end-of-document id.
  Texts run(const std::string& name, const std::string& bytes) {
    write_file(dir_ / name, bytes);
    options_.inputs = {dir_ / name};
    report_ = tokenize_text_files(options_);
    const IndexedDataset dataset(dir_ / "out", 257);
    Texts texts;
    for (int64_t k = 0; k < dataset.documents(); ++k) {
      std::vector<int32_t> ids = read_sequence(dataset, k);
      EXPECT_EQ(ids.back(), 256);
      ids.pop_back();
      texts.emplace_back();
      tokenizer_->decode(ids, texts.back());
    }
    return texts;
  }
  // Both files, tokenized in shares.
  std::string in_shares(int count, int threads, int pieces = 0) {
    options_.threads = threads;
    totals_ = {};
    for (const TokenizeReport& report : test::tokenize_in_shares(options_, count, pieces)) {
      totals_["documents"] += report.documents;
      totals_["empty"] += report.empty_documents;
      totals_["blank"] += report.blank_lines;
      totals_["files"] += report.files;
      totals_["bytes"] += report.bytes;
    }
    EXPECT_EQ(dir_.names().size(), options_.inputs.size() + 2);  // no parts are left
    return read_file(dir_ / "out.idx") + read_file(dir_ / "out.bin");
  }

  TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer("bytes");
  TokenizeOptions options_;
  TokenizeReport report_;
  std::map<std::string, int64_t> totals_;
};

TEST_F(TokenizeShares, LinesOfJson) {
  const std::string lines =
      "\xEF\xBB\xBF{\"text\": \"one\"}\r\n"
      "\n"
      "{\"id\": [1, {\"text\": \"inner\"}], \"text\": \"t\\u0000w\\u00f6\\n\", \"z\": null}\n"
      "  \t\r\n"
      "{\"text\": \"\"}\n"
      "{\"text\": 5, \"text\": \"last counts\"}\n"
      "{\"text\": \"no line end\"}";
  EXPECT_EQ(run("in.jsonl", lines),
            (Texts{"one", std::string("t\0w\xC3\xB6\n", 6), "last counts", "no line end"}));
  EXPECT_EQ(report_.empty_documents, 1);
  EXPECT_EQ(report_.blank_lines, 2);
  EXPECT_EQ(report_.bytes, std::ssize(lines));
  options_.key = "body";
  EXPECT_EQ(run("in.json", "{\"body\": \"b\", \"text\": \"t\"}"), Texts{"b"});
}

TEST_F(TokenizeShares, BadLinesStopWithFileAndLineOrAreCounted) {
  const std::vector<std::pair<std::string, std::string>> bad{
      {"{\"txt\": \"x\"}", "no key \"text\""},
      {"{\"text\": null}", "null"},
      {"{\"text\": 7}", "a number"},
      {"{\"text\": [\"x\"]}", "a list"},
      {"{\"text\": {\"text\": \"x\"}}", "an object"},
      {"\"text\"", "not an object"},
      {"[\"text\"]", "not an object"},
      {"{\"text\": \"cut", "not JSON"},
      {"{\"text\": \"x\"} {}", "not JSON"},
      {"{\"text\": \"\xFF\"}", "not JSON"},
      {"{\"text\": \"\\ud800\"}", "not JSON"},
      {std::string("{\"text\": \"\0\"}", 13), "not JSON"}};
  std::string all = "{\"text\": \"good\"}\n\n";
  for (const auto& [line, word] : bad) {
    expect_error(ExitCode::bad_data, {"in.jsonl:3:", word},
                 [&] { run("in.jsonl", "{\"text\": \"good\"}\n\n" + line); });
    EXPECT_EQ(dir_.names(), Texts{"in.jsonl"});
    all += line + "\n";
  }
  options_.bad_lines = BadLines::skip;
  EXPECT_EQ(run("in.jsonl", all + "{\"text\": \"end\"}\n"), (Texts{"good", "end"}));
  EXPECT_EQ(report_.malformed_lines, 7);
  EXPECT_EQ(report_.lines_without_key, 1);
  EXPECT_EQ(report_.lines_without_text, 4);
  EXPECT_EQ(report_.documents + report_.blank_lines + report_.malformed_lines +
                report_.lines_without_key + report_.lines_without_text,
            15);
}

TEST_F(TokenizeShares, ALineThatIsTooLongStops) {
  options_.longest_document = 100;
  expect_error(ExitCode::bad_data, {"record 2", "100 bytes"}, [&] {
    run("in.jsonl", "{\"text\": \"x\"}\n{\"text\": \"" + std::string(100, 'y') + "\"}\n");
  });
  EXPECT_EQ(run("in.jsonl", "{\"text\": \"" + std::string(88, 'y') + "\"}"),
            Texts{std::string(88, 'y')});
}

TEST_F(TokenizeShares, TheEndOfDocumentCanBeLeftOut) {
  options_.append_end = false;
  write_file(dir_ / "in.jsonl", "{\"text\": \"ab\"}\n");
  options_.inputs = {dir_ / "in.jsonl"};
  EXPECT_EQ(tokenize_text_files(options_).tokens, 2);
}

TEST_F(TokenizeShares, AnyNumberOfSharesAndThreadsGivesTheSameBytes) {
  std::mt19937 random(11);
  std::string jsonl, text;
  for (int i = 0; i < 300; ++i) {
    jsonl +=
        random() % 9 == 0 ? "\n" : "{\"text\": \"" + std::string(random() % 60, 'j') + "\"}\r\n";
    text += random() % 4 == 0 ? "%\n" : std::string(random() % 30, '%') + "t\n";
  }
  write_file(dir_ / "a.jsonl", jsonl);
  write_file(dir_ / "b.jsonl", jsonl.substr(0, 777) + "\"}");
  write_file(dir_ / "empty.jsonl", "");
  options_.bad_lines = BadLines::skip;
  options_.inputs = {dir_ / "a.jsonl", dir_ / "b.jsonl", dir_ / "empty.jsonl"};
  const std::string lines = in_shares(1, 1);
  const auto line_totals = totals_;
  for (int count : {1, 2, 3, 13})
    for (int threads : {1, 3}) {
      ASSERT_EQ(in_shares(count, threads), lines) << count << " shares, " << threads << " threads";
      EXPECT_EQ(totals_, line_totals);
      ASSERT_EQ(in_shares(count, threads, 50), lines) << count << " shares, " << threads;
      EXPECT_EQ(totals_, line_totals);
    }
  write_file(dir_ / "a.jsonl", text);
  write_file(dir_ / "b.jsonl", text.substr(0, 500) + "%");
  options_.format = TextFormat::text;
  options_.document_mark = "%";
  const std::string documents = in_shares(1, 1);
  const auto document_totals = totals_;
  for (int count : {2, 3, 7, 40}) {
    for (int pieces : {0, 1, 29, 1000})
      ASSERT_EQ(in_shares(count, 1, pieces), documents) << count << " shares, " << pieces;
    EXPECT_EQ(totals_, document_totals);
  }
}

TEST_F(TokenizeShares, PlacesOfPiecesAreKnownOnceAllBeforeThemAre) {
  PieceMap map(4, 2);
  map.learn(1, std::vector<PieceSize>{{2, 20, 2}, {0, 5, 1}});
  EXPECT_EQ(map.known(), 1);
  map.learn(0, std::vector<PieceSize>{{3, 7, 3}});
  EXPECT_EQ(map.known(), 1);
  map.learn(0, std::vector<PieceSize>{{1, 100, 4}});
  EXPECT_EQ(map.known(), 4);
  EXPECT_EQ(map[1].first_in_whole, 5);
  EXPECT_EQ(map[2].first_in_whole, 105);
  EXPECT_EQ(map[3].first_in_whole, 125);
  EXPECT_EQ(map[0].first_in_part, 20);
  EXPECT_EQ(map[0].first_document, 2);
  EXPECT_EQ(map[1].first_in_part, 7);
  for (int piece : {-1, 2, 4})
    expect_error(ExitCode::internal, {"piece"}, [&] {
      map.learn(0, std::vector<PieceSize>{{piece, 1, 1}});
    });
}

TEST_F(TokenizeShares, ErrorsInALaterShareNameTheLineOfTheFile) {
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += "{\"text\": \"fine\"}\n";
  write_file(dir_ / "in.jsonl", lines + "{}\n" + lines);
  options_.inputs = {dir_ / "in.jsonl"};
  TokenizeWork work(options_, Share{0, 2, 5});
  work.take(4);
  work.take(2);
  expect_error(ExitCode::bad_data, {"in.jsonl:51:", "no key"}, [&] {
    while (work.advance(1000)) {
    }
  });
}

TEST_F(TokenizeShares, CompressedInput) {
  std::string lines;
  for (int i = 0; i < 40000; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  const Texts plain = run("in.jsonl", lines);
  for (const auto& [ending, command] :
       {std::pair{".gz", "gzip -k"}, std::pair{".zst", "zstd -q -k"}}) {
    const std::string packed = dir_ / "in.jsonl" + ending;
    if (run_shell(std::string(command) + " " + (dir_ / "in.jsonl")) != 0)
      GTEST_SKIP() << command << " does not run here";
    const std::string bytes = read_file(packed);
    // Two members or frames, one after the other, are one text.
    Texts twice;
    try {
      EXPECT_EQ(run("copy.jsonl" + std::string(ending), bytes), plain);
      twice = run("copy.jsonl" + std::string(ending), bytes + bytes);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();  // a build without the library says so
    }
    EXPECT_EQ(twice.size(), 2 * plain.size());
    for (size_t cut : {size_t{6}, bytes.size() / 2, bytes.size() - 1})
      expect_error(ExitCode::bad_data, {"copy.jsonl", "too early"},
                   [&] { run("copy.jsonl" + std::string(ending), bytes.substr(0, cut)); });
    std::string damaged = bytes;
    for (size_t i = 100; i < 140; ++i) damaged[i] = static_cast<char>(~damaged[i]);
    expect_error(ExitCode::bad_data, {"copy.jsonl"},
                 [&] { run("copy.jsonl" + std::string(ending), damaged); });
    expect_error(ExitCode::bad_data, {"copy.jsonl"},
                 [&] { run("copy.jsonl" + std::string(ending), bytes + "tail"); });
  }
}

// A tokenizer with marks of its own: one byte an id, 1 and 2 around a document.
class MarkedTokenizer : public Tokenizer {
 public:
  MarkedTokenizer(int32_t end, std::vector<int32_t> start, std::vector<int32_t> behind)
      : end_(end), start_(std::move(start)), behind_(std::move(behind)) {}
  int64_t vocab() const override { return 300; }
  int32_t end_of_document() const override { return end_; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (char c : text) ids.push_back(c);
  }
  void decode(std::span<const int32_t>, std::string&) const override {}
  bool cuts_anywhere() const override { return false; }
  std::span<const int32_t> start_marks() const override { return start_; }
  std::span<const int32_t> end_marks() const override { return behind_; }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<MarkedTokenizer>(*this);
  }

 private:
  int32_t end_;
  std::vector<int32_t> start_, behind_;
};

TEST_F(TokenizeShares, ExactlyOneEndOfDocument) {
  write_file(dir_ / "in.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\"}\n{\"text\": \"b\"}\n");
  options_.inputs = {dir_ / "in.jsonl"};
  using Ids = std::vector<int32_t>;
  const auto ids = [&](const MarkedTokenizer& tokenizer) {
    options_.tokenizer = &tokenizer;
    tokenize_text_files(options_);
    const IndexedDataset dataset(dir_ / "out", 300);
    EXPECT_EQ(dataset.documents(), 2);
    EXPECT_EQ(read_sequence(dataset, 1)[read_sequence(dataset, 1).size() - 1], 299);
    return read_sequence(dataset, 0);
  };
  EXPECT_EQ(ids({299, {}, {}}), (Ids{'a', 299}));
  EXPECT_EQ(ids({299, {1}, {}}), (Ids{1, 'a', 299}));
  EXPECT_EQ(ids({299, {}, {299}}), (Ids{'a', 299}));
  EXPECT_EQ(ids({299, {1}, {2}}), (Ids{1, 'a', 2, 299}));
}

}  // namespace
}  // namespace trireme
