// trireme generate on a small run: the same text on every layout, and errors in words.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/run_files.hpp"
#include "support/run_json.hpp"
#include "support/run_program.hpp"

namespace trireme::test {
namespace {

class Generate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder("generate");
    const ProgramResult trained =
        run_trireme(2, small_run(folder_->path(), {"model.vocab=257", "model.positions=30",
                                                   "grid.tp=2", "run.directory=" + run()}));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    std::ofstream(*folder_ / "prompts.jsonl")
        << "{\"prompt\": \"abc\"}\n{\"prompt\": \"\"}\n\n{\"prompt\": \"\\u00e9 and more\"}\n";
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::string run() { return (*folder_ / "run").string(); }
  static std::string prompts() { return (*folder_ / "prompts.jsonl").string(); }

  // One rank needs no launcher.
  static ProgramResult start(int ranks, const std::string& words) {
    return ranks == 1 ? run_command("OMP_NUM_THREADS=1 " + program_path() + " " + words)
                      : run_trireme(ranks, words, 300);
  }
  static ProgramResult generate(int ranks, const std::string& words) {
    return start(ranks, "generate " + run() + " " + words);
  }
  static void expect_refused(const std::string& words, int code, const std::string& text) {
    const ProgramResult result = start(1, "generate " + words);
    EXPECT_EQ(result.exit_code, code) << words << "\n" << result.output;
    EXPECT_NE(result.output.find(text), std::string::npos) << words << "\n" << result.output;
  }
  static ScratchFolder* folder_;
};
ScratchFolder* Generate::folder_ = nullptr;

// The deck says tp 2: ranks that do not fit it take another grid by themselves.
TEST_F(Generate, EveryLayoutWritesTheSameText) {
  for (const char* how :
       {"--temperature 0", "--temperature 1.3 --top-k 90 --top-p 0.95 --seed 3"}) {
    const std::string words =
        fmt::format("--prompt-file {} --tokens 12 --ignore-eod --format jsonl {}", prompts(), how);
    const ProgramResult one = generate(1, words);
    ASSERT_EQ(one.exit_code, 0) << one.output;
    const auto want = json_lines(one.output);
    ASSERT_EQ(want.size(), 3u) << one.output;
    EXPECT_EQ(want[0]["prompt"], "abc");
    EXPECT_EQ(want[1]["prompt_tokens"], 1);  // the end of the document before
    EXPECT_EQ(want[2]["prompt_tokens"], 11);
    for (const auto& line : want) {
      EXPECT_EQ(line["tokens"].size(), 12u);
      EXPECT_EQ(line["ended_by"], "most tokens");
    }
    for (const auto& [ranks, layout] :
         std::vector<std::pair<int, std::string>>{{2, ""},
                                                  {2, "--grid.tp=1 --grid.pp=2"},
                                                  {2, "--grid.tp=1 --grid.pp=1"},
                                                  {4, "--grid.tp=2 --grid.pp=2 --batch 2"}}) {
      const ProgramResult other = generate(ranks, words + " " + layout);
      ASSERT_EQ(other.exit_code, 0) << other.output;
      EXPECT_EQ(json_lines(other.output), want) << how << " " << layout;
    }
  }
}

TEST_F(Generate, TextIsPromptAndContinuation) {
  const ProgramResult lines = generate(1, "--prompt abc \"d e\" --tokens 5 --format jsonl");
  const auto json = json_lines(lines.output);
  ASSERT_EQ(json.size(), 2u) << lines.output;
  const ProgramResult text = generate(1, "--prompt abc \"d e\" --tokens 5 --log.level=error");
  EXPECT_EQ(text.output,
            fmt::format("--- prompt 1 of 2 ---\nabc{}\n\n--- prompt 2 of 2 ---\nd e{}\n",
                        json[0]["text"].get<std::string>(), json[1]["text"].get<std::string>()));
  const ProgramResult one = generate(1, "--prompt abc --tokens 5 --log.level=error");
  EXPECT_EQ(one.output, fmt::format("abc{}\n", json[0]["text"].get<std::string>()));
}

TEST_F(Generate, EndsAtTheContext) {
  const ProgramResult result = generate(1, "--prompt abc --ignore-eod --format jsonl");
  const auto json = json_lines(result.output);
  ASSERT_EQ(json.size(), 1u) << result.output;
  EXPECT_EQ(json[0]["tokens"].size(), 27u);  // 30 positions
  EXPECT_EQ(json[0]["ended_by"], "end of context");
  EXPECT_NE(result.output.find("tokens/s"), std::string::npos);
}

TEST_F(Generate, RefusesInWords) {
  const std::string at = run();
  expect_refused(at + " --prompt " + std::string(30, 'x'), 65,
                 "prompt 1 has 30 tokens, and the context of this model is 30 tokens");
  expect_refused(at + " --context 31", 64, "a table of 30 positions");
  expect_refused(at + " --temperature -1", 64, "a number from 0 to");
  expect_refused(at + " --top-p 1.5", 64, "a number from 0 to 1");
  expect_refused(at + " --flavour sweet", 64, "unknown option --flavour");
  expect_refused(at + " --prompt-file /nonexistent", 66, "no such file");
  expect_refused(at + " --tokenizer /nonexistent", 64, "unknown tokenizer");
  expect_refused(at + " --grid.pp=3", 78, "cannot run on 1 ranks");
  expect_refused((*folder_ / "nothing").string(), 66, "no such checkpoint");
  expect_refused(folder_->path().string(), 66, "no checkpoint (step_*.h5)");
  expect_refused("", 64, "one checkpoint is needed");
  std::ofstream(*folder_ / "bad.jsonl") << "{\"prompt\": \"a\"}\n{\"text\": \"a\"}\n";
  expect_refused(at + " --prompt-file " + (*folder_ / "bad.jsonl").string(), 65,
                 "bad.jsonl:2: a JSON object with a text under");
  const std::filesystem::path broken = *folder_ / "broken.h5";
  std::filesystem::copy_file(checkpoint_path(at, 7), broken);
  flip_bit(broken, static_cast<int64_t>(std::filesystem::file_size(broken)) / 2);
  expect_refused(broken.string() + " --prompt a --tokenizer bytes", 65, "broken.h5");
}

// A checkpoint without its run: the header alone says what the model is.
TEST_F(Generate, AFileAloneIsEnough) {
  const std::filesystem::path alone = *folder_ / "alone.h5";
  std::filesystem::copy_file(checkpoint_path(run(), 7), alone);
  const ProgramResult result =
      start(1, "generate " + alone.string() + " --prompt abc --tokens 9 --format jsonl");
  const ProgramResult whole = generate(1, "--prompt abc --tokens 9 --format jsonl");
  ASSERT_EQ(json_lines(result.output).size(), 1u) << result.output;
  EXPECT_EQ(json_lines(result.output), json_lines(whole.output));
}

}  // namespace
}  // namespace trireme::test
