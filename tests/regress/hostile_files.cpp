// Damaged and hostile files end the program with exit code 65, a message that names the file and
// the place, and no output: not a file of the wanted name, not a part of one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "support/run_files.hpp"
#include "support/run_program.hpp"

namespace trireme::test {
namespace {

class HostileFiles : public ::testing::Test {
 protected:
  HostileFiles() : folder_("hostile") {}

  std::string put(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path.string();
  }
  // Runs `words`, one process; `place` must be in the message. What was there stays as it was.
  void refused(const std::string& words, const std::vector<std::string>& place) const {
    SCOPED_TRACE(words);
    const auto before = snapshot(folder_.path());
    const ProgramResult result = run_command(program_path() + " " + words);
    EXPECT_EQ(result.exit_code, 65) << result.output;
    for (const std::string& word : place)
      EXPECT_NE(result.output.find(word), std::string::npos)
          << "\"" << word << "\" is not in: " << result.output;
    EXPECT_TRUE(snapshot(folder_.path()) == before) << "files were left, changed or removed";
  }
  void refused_text(const std::string& input, const std::string& tokenizer,
                    const std::vector<std::string>& place) const {
    refused(fmt::format("tokenize --input {} --tokenizer {} --output {}", input, tokenizer,
                        (folder_ / "out").string()),
            place);
  }
  std::string pack(const std::string& program, const std::string& name) const {
    const std::string text = put(name, std::string(5000, 'a') + "\n" + std::string(3000, 'b'));
    const ProgramResult made = run_command(fmt::format("{} {} > {}.packed", program, text, text));
    return made.exit_code == 0 ? file_bytes(text + ".packed") : "";
  }

  ScratchFolder folder_;
};

TEST_F(HostileFiles, PackedText) {
  const std::string gzip = pack("gzip -c", "a.txt");
  ASSERT_FALSE(gzip.empty());
  refused_text(put("cut.txt.gz", gzip.substr(0, gzip.size() - 9)), "bytes",
               {"cut.txt.gz", "ends too early, at byte"});
  std::string flipped = gzip;
  flipped[gzip.size() / 2] = static_cast<char>(flipped[gzip.size() / 2] ^ 0x55);
  refused_text(put("flip.txt.gz", flipped), "bytes", {"flip.txt.gz", "before byte"});
  refused_text(put("behind.txt.gz", gzip + "garbage"), "bytes", {"behind.txt.gz", "before byte"});
  const std::string zstd = pack("zstd -qc", "b.txt");
  if (zstd.empty()) return;  // no such program: unit and fuzz tests hold packed bytes
  refused_text(put("cut.txt.zst", zstd.substr(0, zstd.size() - 2)), "bytes",
               {"cut.txt.zst", "ends too early, at byte"});
  refused_text(put("behind.txt.zst", zstd + "garbage"), "bytes", {"behind.txt.zst", "before byte"});
}

TEST_F(HostileFiles, Jsonl) {
  const std::string good = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  for (const auto& [line, fault] : std::vector<std::pair<std::string, std::string>>{
           {"{\"text\": \"cut", "not JSON at byte"},
           {"[1, 2]", "a list, not an object"},
           {"{\"other\": \"x\"}", "no key \"text\""},
           {"{\"text\": null}", "\"text\" is null"},
           {"{\"text\": \"\\ud800\"}", "not JSON at byte"},
           {"{\"text\": \"\xC3(\"}", "not JSON at byte"},
           {std::string(100000, '['), "line"}})
    refused_text(put("in.jsonl", good + line + "\n" + good), "bytes", {"in.jsonl:3:", fault});
  refused(fmt::format("tokenize --input {} --tokenizer bytes --output {} --longest-document 100",
                      put("long.jsonl", "{\"text\": \"" + std::string(200, 'x') + "\"}\n"),
                      (folder_ / "out").string()),
          {"long.jsonl", "100"});
}

TEST_F(HostileFiles, Tokenizers) {
  const std::string text = put("in.txt", "some text");
  const std::string model =
      R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": )";
  refused_text(text, put("t1/tokenizer.json", "{\"version\": "), {"t1/tokenizer.json", "not JSON"});
  refused_text(text, put("t2/tokenizer.json", model + "[\"a b\"]}}"),
               {"t2/tokenizer.json", "merge 0", "\"ab\""});
  refused_text(text, put("t3/tokenizer.json", model + "[\"a\"]}}"),
               {"t3/tokenizer.json", "model.merges[0]"});
  refused_text(text,
               put("t4/tokenizer.json", R"({"version": "1.0", "model": {"type": "WordPiece"}})"),
               {"t4/tokenizer.json", "WordPiece"});
  refused_text(text,
               put("t5/tokenizer.json",
                   R"({"version": "1.0", "model": {"vocab": {"a": 0, "b": 99999999999}}})"),
               {"t5/tokenizer.json", "99999999999"});
  refused_text(text, put("t6/tokenizer.json", std::string(200000, '[')), {"t6/tokenizer.json"});
  refused_text(
      text,
      put("t7/tokenizer.json",
          R"({"version": "1.0", "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"},
                       "behavior": "Isolated", "invert": false}, "model": {"vocab": {"a": 0}}})"),
      {"t7/tokenizer.json", "pre_tokenizer"});
  put("g/merges.txt", "#version: 0.2\na b\nab\n");
  refused_text(text, put("g/vocab.json", R"({"a": 0, "b": 1, "ab": 2})"), {"merges.txt:3:"});
  put("h/merges.txt", "");
  refused_text(text, put("h/vocab.json", R"({"a": 0, "b": 0})"), {"h/vocab.json", "id 0"});
  refused_text(text, put("x.tiktoken", "YQ== 0\nYg== 1\n?? 2\n"), {"x.tiktoken:3:"});
  refused_text(text, put("y.tiktoken", "YQ== 0\nYg== 1\n"), {"y.tiktoken", "2 ranks"});
  refused_text(text, put("s/tokenizer.model", std::string(300, '\x07')), {"s/tokenizer.model"});
}

TEST_F(HostileFiles, Datasets) {
  const std::string prefix = (folder_ / "good").string();
  write_dataset(prefix, 61, 20);
  const std::string idx = file_bytes(prefix + ".idx"), bin = file_bytes(prefix + ".bin");
  const auto with = [&](const std::string& name, std::string index, const std::string& tokens) {
    put(name + ".bin", tokens);
    return put(name + ".idx", index).substr(0, (folder_ / name).string().size());
  };
  const auto changed = [&](size_t at, char byte) {
    std::string bytes = idx;
    bytes[at] = byte;
    return bytes;
  };
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {changed(0, 'X'), bin, "bad.idx: byte 0"},
      {changed(9, 2), bin, "bad.idx: byte 9"},
      {changed(17, 7), bin, "bad.idx: byte 17"},
      {changed(24, 1), bin, "bad.idx: byte 18"},
      {changed(37, '\xFF'), bin, "bad.idx: byte 34"},
      {changed(34 + 4 * 20 + 8, 1), bin, "bad.idx: byte 122"},
      {idx.substr(0, idx.size() - 1), bin, "bad.idx: ends at byte"},
      {idx + "xyz", bin, "bad.idx: should end at byte"},
      {idx, bin.substr(0, 100), "bad.bin: ends at byte 100"},
      {idx, bin + "x", "bad.bin: should end at byte"}};
  for (const auto& [index, tokens, place] : cases) {
    const std::string bad = with("bad", index, tokens);
    refused("verify " + bad, {place});
    refused(
        fmt::format("tokenize --merge {} {} --output {}", prefix, bad, (folder_ / "out").string()),
        {place});
  }
  refused(small_run(folder_.path(), {"data.path=" + with("bad", changed(9, 2), bin),
                                     "run.directory=" + (folder_ / "run").string()}),
          {"bad.idx: byte 9"});
}

TEST_F(HostileFiles, ShardsOfLlmc) {
  std::string header(1024, '\0');
  const auto set = [&](size_t word, int32_t value) {
    std::copy_n(reinterpret_cast<const char*>(&value), 4,
                header.begin() + 4 * static_cast<ptrdiff_t>(word));
  };
  set(0, 20240520);
  set(1, 1);
  set(2, 1000);
  small_run(folder_.path(), {});
  const auto words = [&](const std::string& name, const std::string& bytes) {
    return small_run(folder_.path(), {"data.path=", "data.train_path=" + put(name, bytes),
                                      "run.directory=" + (folder_ / "run").string()});
  };
  const std::string ids(2000, '\1');
  refused(words("short_1.bin", header + ids.substr(1)), {"short_1.bin: ends at byte 3023"});
  set(1, 3);
  refused(words("version_3.bin", header + ids), {"version_3.bin: byte 4: version 3"});
  set(1, 1);
  // Ids are seen when they are read: the run directory is there by then.
  const ProgramResult large =
      run_command(program_path() + " " + words("large_2.bin", header + ids));
  EXPECT_EQ(large.exit_code, 65) << large.output;
  EXPECT_NE(large.output.find("token id 257 at position"), std::string::npos) << large.output;
}

}  // namespace
}  // namespace trireme::test
