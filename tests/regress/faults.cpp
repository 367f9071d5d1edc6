// What goes wrong before the first step: a clear message that names the thing, the place and the
// remedy, the documented exit code within ten seconds, and nothing touched.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <signal.h>

#include "support/run_background.hpp"
#include "support/run_files.hpp"
#include "trireme/data/indexed_writer.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

class Faults : public ::testing::Test {
 protected:
  Faults() : folder_("faults") {}

  std::string words(const std::string& directory, Lines lines) {
    lines.insert(lines.end(), {"run.directory=" + directory, "schedule.warmup=0"});
    return small_run(folder_.path(), lines);
  }
  void expect_refused(int ranks, const std::string& words, int code, const Lines& texts) {
    const ProgramResult result = run_trireme(ranks, words, 30);
    EXPECT_EQ(result.exit_code, code) << result.output;
    EXPECT_LT(result.seconds, 10) << result.output;
    for (const std::string& text : texts)
      EXPECT_NE(result.output.find(text), std::string::npos) << text << "\n" << result.output;
    const std::string mark = "trireme: error";
    const size_t first = result.output.find(mark);
    EXPECT_NE(first, std::string::npos) << result.output;
    EXPECT_EQ(first, result.output.rfind(mark)) << "said more than once\n" << result.output;
  }
  // A dataset of one document with these tokens again and again.
  std::string dataset(const std::string& name, const std::vector<int32_t>& tokens) {
    IndexedDatasetWriter writer({(folder_ / name).string(), TokenType::u16});
    for (int i = 0; i < 40; ++i) {
      writer.append(tokens);
      writer.end_document();
    }
    writer.commit();
    return (folder_ / name).string();
  }

  ScratchFolder folder_;
};

struct Refusal {
  const char* name;
  int ranks;
  Lines lines;
  int code;
  Lines texts;
};

// All against a directory that holds a finished run, which must not change.
TEST_F(Faults, AreNamedAndTouchNothing) {
  const std::string directory = (folder_ / "run").string();
  ASSERT_EQ(run_trireme(1, words(directory, {"run.steps=2"})).exit_code, 0);
  const auto before = snapshot(directory);
  write_dataset(folder_ / "cut", 61, 200);
  std::filesystem::resize_file(folder_ / "cut.idx", 500);
  write_dataset(folder_ / "lost", 61, 200);
  std::filesystem::remove(folder_ / "lost.bin");
  const auto path = [&](const char* name) { return "data.path=" + (folder_ / name).string(); };
  const std::vector<Refusal> refusals = {
      {"misspelt key", 2, {"grid.ttp=2"}, 78, {"grid.ttp", "grid.tp"}},
      {"heads", 3, {"grid.tp=3"}, 78, {"grid.tp 3 does not divide model.heads 4", "layouts"}},
      {"ranks", 3, {"grid.tp=2"}, 78, {"does not divide the number of ranks, 3"}},
      {"stages", 4, {"grid.pp=4"}, 78, {"4 stages is more than model.layers 3"}},
      {"cut index", 2, {path("cut")}, 65, {"cut.idx"}},
      {"lost tokens", 2, {path("lost")}, 66, {"lost.bin"}},
      {"no data", 2, {path("nothing")}, 66, {"nothing"}},
      {"other model",
       2,
       {"model.hidden=32", "run.steps=9"},
       78,
       {"another model", "model.hidden: 24 in the checkpoint, 32 in the deck"}},
      {"no validation",
       2,
       {"run.evaluate_every=1", "data.split=1", "run.steps=9"},
       78,
       {"validation split is empty"}},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    expect_refused(refusal.ranks, words(directory, refusal.lines), refusal.code, refusal.texts);
    EXPECT_TRUE(snapshot(directory) == before);
  }
  expect_refused(2, "train " + (folder_ / "missing.ini").string(), 66, {"missing.ini"});
  expect_refused(2, "train", 64, {"a deck is missing"});
  expect_refused(1, words((folder_ / "new").string(), {"checkpoint.load=/nowhere/x.h5"}), 66,
                 {"/nowhere/x.h5"});
}

// Sizes that a layout does not divide: refused by name before anything starts.
TEST_F(Faults, SizesThatDoNotDivideAreRefused) {
  const std::vector<std::pair<std::string, Lines>> cases = {
      {"--ranks 4 --grid.pp=4 --model.layers=2", {"model.layers 2"}},
      {"--ranks 2 --grid.tp=2 --grid.sequence_parallel=true --batch.micro=1 --batch.sequence=33",
       {"33", "grid.tp 2"}},
      {"--ranks 4 --grid.tp=4 --model.hidden=48 --model.heads=6", {"model.heads 6"}},
      {"--ranks 2 --grid.tp=2 --model.ffn=171", {"model.ffn 171"}},
      {"--ranks 1 --model.hidden=30", {"model.hidden 30", "model.heads 4"}},
      {"--ranks 3 --grid.dp=3 --batch.global=10", {"batch.global 10"}}};
  small_run(folder_.path(), {});
  for (const auto& [overrides, texts] : cases) {
    const ProgramResult result = run_command(
        fmt::format("{} plan {} {}", program_path(), (folder_ / "deck.ini").string(), overrides));
    EXPECT_EQ(result.exit_code, 78) << result.output;
    EXPECT_LT(result.seconds, 5);
    for (const std::string& text : texts)
      EXPECT_NE(result.output.find(text), std::string::npos) << text << "\n" << result.output;
  }
}

// Vocabulary 61: token 60 is the last one. A split table or a later stage must not hide 61 or 300.
TEST_F(Faults, TokensBeyondTheVocabulary) {
  const std::string good = dataset("good", {0, 60, 3, 60, 7, 1, 2, 9});
  const std::string directory = (folder_ / "run").string();
  const ProgramResult runs =
      run_trireme(2, words(directory, {"data.path=" + good, "grid.tp=2", "run.steps=1"}));
  EXPECT_EQ(runs.exit_code, 0) << runs.output;
  for (const int token : {61, 300}) {
    const std::string bad = dataset(fmt::format("bad{}", token), {0, 60, 3, token, 7, 1, 2, 9});
    for (const auto& [ranks, layout] : std::vector<std::pair<int, std::string>>{
             {1, "grid.tp=1"}, {2, "grid.tp=2"}, {2, "grid.pp=2"}}) {
      SCOPED_TRACE(layout);
      std::filesystem::remove_all(directory);
      expect_refused(ranks, words(directory, {"data.path=" + bad, layout}), 65,
                     {fmt::format("{}", token), "bad", "61"});
      EXPECT_FALSE(std::filesystem::exists(checkpoint_path(directory, 7)));
    }
  }
}

TEST_F(Faults, TwoJobsInOneDirectory) {
  const std::string directory = (folder_ / "run").string();
  BackgroundRun first(1, words(directory, {"run.steps=3000"}), folder_ / "output");
  ASSERT_TRUE(first.wait_for_step(directory, 5)) << first.output();
  expect_refused(2, words(directory, {"run.steps=3000"}), 74,
                 {"is in use by process", "choose another run.directory"});
  ::kill(first.launcher(), SIGUSR1);
  const ProgramResult ended = first.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  const size_t steps = read_metrics(directory).size();
  EXPECT_GT(steps, 5u);
  EXPECT_TRUE(std::filesystem::exists(checkpoint_path(directory, static_cast<int64_t>(steps))));
}

TEST_F(Faults, AFullDiskAtTheStart) {
  const SmallDisk disk(folder_ / "disk", 4096);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  const std::string directory = (folder_ / "disk" / "run").string();
  ASSERT_EQ(run_trireme(2, words(directory, {"run.steps=2"})).exit_code, 0);
  for (const int64_t left : {200, 8}) {
    disk.fill_up_to(left);
    const auto before = snapshot(directory);
    expect_refused(2, words(directory, {"run.steps=4"}), 74, {"No space left", directory});
    EXPECT_TRUE(snapshot(directory) == before) << left;
  }
}

TEST_F(Faults, AReadOnlyDirectory) {
  const SmallDisk disk(folder_ / "disk", 16384);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  const std::string directory = (folder_ / "disk" / "run").string();
  ASSERT_EQ(run_trireme(2, words(directory, {"run.steps=2"})).exit_code, 0);
  const auto before = snapshot(directory);
  ASSERT_TRUE(disk.make_read_only());
  expect_refused(2, words(directory, {"run.steps=4"}), 74, {"Read-only file system", directory});
  expect_refused(2, words((folder_ / "disk" / "new").string(), {}), 74,
                 {"Read-only file system", "disk/new"});
  EXPECT_TRUE(snapshot(directory) == before);
}

}  // namespace
}  // namespace trireme::test
