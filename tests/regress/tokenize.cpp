// `trireme tokenize` over ranks: the same bytes for any number of them; complete or absent.
#include <gtest/gtest.h>

#include <fstream>

#include "support/run_program.hpp"

namespace trireme::test {
namespace {

TEST(Tokenize, AnyNumberOfRanksWritesTheSameBytes) {
  const ScratchFolder folder("tokenize_ranks");
  std::ofstream file(folder / "in.jsonl");
  for (int i = 0; i < 500; ++i)
    file << "{\"text\": \"" << std::string(static_cast<size_t>(i % 37), 'x') << i << "\"}\n";
  file.close();
  const std::string words = "tokenize --tokenizer bytes --input " + (folder / "in.jsonl").string() +
                            " --output " + folder.path().string() + "/";
  for (int ranks : {1, 2, 3}) {
    const std::string name = "out" + std::to_string(ranks);
    const ProgramResult result = run_trireme(ranks, words + name + " --threads 2");
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_NE(result.output.find("in 500 documents from 1 files"), std::string::npos)
        << result.output;
    EXPECT_EQ(file_bytes(folder / (name + ".bin")), file_bytes(folder / "out1.bin"));
    EXPECT_EQ(file_bytes(folder / (name + ".idx")), file_bytes(folder / "out1.idx"));
  }
  std::ofstream(folder / "in.jsonl", std::ios::app) << "{\"text\": null}\n";
  const ProgramResult result = run_trireme(2, words + "bad");
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_NE(result.output.find("in.jsonl:501: \"text\" is null"), std::string::npos)
      << result.output;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_NE(entry.path().filename().string().substr(0, 3), "bad") << entry.path();
}

// Several pieces a rank, moved into place while others are still read.
TEST(Tokenize, ManyPiecesOverRanks) {
  const ScratchFolder folder("tokenize_pieces");
  std::ofstream file(folder / "in.jsonl");
  for (int i = 0; i < 3000; ++i)
    file << "{\"text\": \"" << std::string(static_cast<size_t>(1 + i * 7919 % 20011), 'y') << i
         << "\"}\n";
  file.close();
  const std::string words = "tokenize --tokenizer bytes --input " + (folder / "in.jsonl").string() +
                            " --output " + folder.path().string() + "/";
  for (int ranks : {1, 3}) {
    const std::string name = "out" + std::to_string(ranks);
    const ProgramResult result = run_trireme(ranks, words + name);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_TRUE(file_bytes(folder / (name + ".bin")) == file_bytes(folder / "out1.bin"));
    EXPECT_TRUE(file_bytes(folder / (name + ".idx")) == file_bytes(folder / "out1.idx"));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 5);
}

// The launcher hands it to the first rank only.
TEST(Tokenize, StandardInputIsReadByTheRankThatHasIt) {
  const ScratchFolder folder("tokenize_stdin");
  std::ofstream(folder / "in.txt") << "from standard input";
  std::ofstream(folder / "more.txt") << "from a file";
  for (int ranks : {1, 2}) {
    const std::string name = "out" + std::to_string(ranks);
    const ProgramResult result =
        run_command(launch_command(ranks, "tokenize --tokenizer bytes --input " +
                                              (folder / "more.txt").string() + " - --output " +
                                              (folder / name).string()) +
                    " < " + (folder / "in.txt").string());
    EXPECT_NE(result.output.find("in 2 documents"), std::string::npos) << result.output;
    EXPECT_EQ(file_bytes(folder / (name + ".bin")), file_bytes(folder / "out1.bin"));
  }
}

}  // namespace
}  // namespace trireme::test
