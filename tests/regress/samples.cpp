// Which samples a run trains on: after any stops, with other layouts and micro-batches, those of
// the straight run; blends, named validation sets, masks of prompts; the end of a dataset of more
// than 2^31 tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/run_files.hpp"
#include "support/run_program.hpp"
#include "trireme/data/gpt_order.hpp"
#include "trireme/data/indexed_dataset.hpp"
#include "trireme/data/indexed_writer.hpp"
#include "trireme/train/sample_log.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;
using Sample = std::pair<int64_t, std::string>;  // number, sum over the tokens
using Steps = std::map<int64_t, std::set<Sample>>;

class Samples : public ::testing::Test {
 protected:
  Samples() : folder_("samples") {}

  ProgramResult train(const std::string& name, int ranks, Lines lines) {
    lines.push_back("run.directory=" + (folder_ / name).string());
    lines.push_back("log.samples=true");
    const ProgramResult result = run_trireme(ranks, small_run(folder_.path(), lines), 120);
    EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.output;
    return result;
  }
  // What all ranks logged. Ranks of one dp rank log the same, other dp ranks something else.
  Steps logged(const std::string& name) const {
    Steps steps;
    std::map<std::pair<int64_t, int64_t>, std::set<Sample>> by_replica;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / name / "samples")) {
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        const nlohmann::json record = nlohmann::json::parse(line);
        std::set<Sample> samples;
        for (size_t i = 0; i < record["samples"].size(); ++i)
          samples.emplace(record["samples"][i], record["sums"][i]);
        std::set<Sample>& before = by_replica[{record["step"], record["dp"]}];
        EXPECT_TRUE(before.empty() || before == samples) << entry.path() << "\n" << line;
        before = samples;
      }
    }
    for (const auto& [place, samples] : by_replica)
      for (const Sample& sample : samples)
        EXPECT_TRUE(steps[place.first].insert(sample).second) << "sample " << sample.first;
    return steps;
  }
  std::string dataset(const std::string& name, int documents) {
    write_dataset(folder_ / name, 61, documents);
    return (folder_ / name).string();
  }

  ScratchFolder folder_;
};

// A blend that is repeated several times; killed after steps 2, 3, 5 and 7, each time after the
// job had gone on to the end, and started again on another layout.
TEST_F(Samples, AnyStopsAndLayoutsGiveThoseOfTheStraightRun) {
  const Lines common = {"run.steps=9", "checkpoint.every=1", "data.split=1",
                        "data.path=0.3 " + dataset("few", 6) + " 0.7 " + dataset("more", 9)};
  const auto with = [&](Lines lines) {
    lines.insert(lines.end(), common.begin(), common.end());
    return lines;
  };
  train("straight", 1, with({"batch.micro=8"}));
  const Steps want = logged("straight");
  ASSERT_EQ(want.size(), 9u);
  for (const auto& [step, samples] : want) {
    std::set<int64_t> numbers;
    for (const Sample& sample : samples) numbers.insert(sample.first);
    EXPECT_EQ(numbers.size(), 8u);
    EXPECT_EQ(*numbers.begin(), 8 * (step - 1));
    EXPECT_EQ(*numbers.rbegin(), 8 * step - 1);
  }
  struct Next {
    int64_t stop;
    int ranks;
    Lines lines;
  };
  std::string before = "straight";
  for (const Next& next :
       {Next{2, 2, {"grid.dp=2", "batch.micro=1"}}, Next{3, 2, {"grid.pp=2", "batch.micro=4"}},
        Next{5, 4, {"grid.dp=4", "batch.micro=2"}},
        Next{7, 4, {"grid.tp=2", "grid.dp=2", "batch.micro=2"}}}) {
    const std::string name = fmt::format("stop{}", next.stop);
    copy_run_at(folder_ / before, folder_ / name, next.stop);
    std::filesystem::copy(folder_ / before / "samples", folder_ / name / "samples");
    train(name, next.ranks, with(next.lines));
    EXPECT_EQ(logged(name), want) << name;
    before = name;
  }
  EXPECT_GE(std::distance(std::filesystem::directory_iterator(folder_ / before / "samples"),
                          std::filesystem::directory_iterator()),
            11);  // files of five starts
}

TEST_F(Samples, NamedValidationSetsHaveTheirOwnLosses) {
  const std::string one = dataset("one", 30), two = dataset("two", 25);
  const Lines lines = {"run.steps=4", "run.evaluate_every=2", "run.evaluate_batches=2",
                       "data.validation_sets=one: " + one + "; both: 1 " + one + " 2 " + two,
                       "checkpoint.every=2"};
  const ProgramResult result = train("sets", 1, lines);
  EXPECT_NE(result.output.find("both loss "), std::string::npos) << result.output;
  std::map<std::string, std::map<int64_t, double>> losses;
  const auto read = [&](const std::string& name) {
    losses.clear();
    std::ifstream file(folder_ / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      for (const char* set : {"validation", "one", "both"})
        if (record.contains(std::string(set) + "_loss"))
          losses[set][record["step"]] = record[std::string(set) + "_loss"];
    }
    return losses;
  };
  const auto want = read("sets");
  ASSERT_EQ(want.size(), 3u);
  EXPECT_EQ(want.at("one").size(), 2u);
  EXPECT_NE(want.at("one").at(4), want.at("both").at(4));
  // On another layout and after a stop: the same values, up to rounding.
  copy_run_at(folder_ / "sets", folder_ / "again", 2);
  Lines other = lines;
  other.insert(other.end(), {"grid.pp=2", "grid.dp=2", "batch.micro=1"});
  train("again", 4, other);
  const auto have = read("again");
  for (const auto& [set, values] : want)
    for (const auto& [step, loss] : values)
      EXPECT_NEAR(have.at(set).at(step), loss, 1e-4) << set << " " << step;
  // They change nothing in training.
  train("without", 1, {"run.steps=4", "checkpoint.every=2"});
  EXPECT_EQ(read_metrics(folder_ / "without"), read_metrics(folder_ / "sets"));
}

// Learning rate 0, a head of zeros: the loss is log V for every token, so only the count differs.
TEST_F(Samples, OnlyMarkedTokensCount) {
  const std::string data = dataset("data", 200);
  IndexedDatasetWriter mask({data + ".mask", TokenType::u8});
  const IndexedDataset tokens(data);
  int64_t counted = 0;
  for (int64_t d = 0; d < tokens.documents(); ++d) {
    std::vector<int32_t> flags(static_cast<size_t>(tokens.sequences()[d]));
    for (size_t i = 0; i < flags.size(); ++i) flags[i] = i >= 10 ? 1 : 0;
    if (d >= 180) counted += std::ssize(flags) - 10;
    mask.append(flags);
    mask.end_document();
  }
  mask.commit();
  const Lines lines = {"run.steps=3", "run.evaluate_every=1", "run.evaluate_batches=0",
                       "data.loss_mask=true"};
  train("masked", 1, lines);
  std::map<std::string, int64_t> seen;
  std::ifstream file(folder_ / "masked" / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record.contains("validation_tokens")) seen["masked"] = record["validation_tokens"];
  }
  // All targets of the part but the first token of it and those behind the last sample.
  EXPECT_LE(seen["masked"], counted);
  EXPECT_GT(seen["masked"], counted - 21);
  Lines split = lines;
  split.insert(split.end(), {"grid.dp=2", "batch.micro=1"});
  train("masked2", 2, split);
  const std::vector<MetricsLine> one = read_metrics(folder_ / "masked");
  const std::vector<MetricsLine> two = read_metrics(folder_ / "masked2");
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i].loss, two[i].loss, 1e-5);
}

// 2^31 + 2^30 tokens in sparse files. Known tokens are planted at the very end; the checkpoint that
// the run starts from says that all samples before the one with them are consumed.
TEST_F(Samples, TheEndOfMoreThanTwoToThe31Tokens) {
  constexpr int64_t kLength = int64_t{1} << 30;
  constexpr int64_t kSequence = 256;
  const std::filesystem::path prefix = folder_ / "large";
  {
    IndexedDatasetWriter small({prefix.string(), TokenType::u16});
    small.append(std::vector<int32_t>(3));
    small.end_document();
    small.commit();
  }
  std::string index = file_bytes(prefix.string() + ".idx").substr(0, 18);
  const auto put = [&](auto value) {
    index.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put(int64_t{3});
  put(int64_t{4});
  for (int i = 0; i < 3; ++i) put(static_cast<int32_t>(kLength));
  for (int64_t i = 0; i < 3; ++i) put(2 * i * kLength);
  for (int64_t i = 0; i < 4; ++i) put(i);
  std::ofstream(prefix.string() + ".idx", std::ios::binary) << index;
  std::filesystem::resize_file(prefix.string() + ".bin", static_cast<uintmax_t>(6 * kLength));
  const std::vector<uint16_t> end(kSequence + 1, 7);
  std::fstream bin(prefix.string() + ".bin", std::ios::in | std::ios::out | std::ios::binary);
  bin.seekp(6 * kLength - 2 * std::ssize(end));
  bin.write(reinterpret_cast<const char*>(end.data()), 2 * std::ssize(end));
  bin.close();

  const IndexedDataset dataset(prefix.string());
  ASSERT_GT(dataset.tokens(), int64_t{1} << 31);
  const int64_t samples = (dataset.tokens() - 1) / kSequence;
  const GptOrder order(dataset.sequences(), {{true, 0, 3}, kSequence, kOneEpoch, 11});
  ASSERT_EQ(order.samples(), samples);
  // The sample with the most of the file's last tokens, and the step that it belongs to.
  std::vector<int32_t> tokens(kSequence + 1);
  int64_t number = -1;
  for (int64_t i = 0; i < samples && number < 0; ++i) {
    const SamplePlace place = order.place(order.shuffled(i));
    const bool last = order.document_index()[static_cast<size_t>(place.position)] == 2;
    if (last && place.offset > kLength - 2 * kSequence && place.offset < kLength - kSequence / 2)
      number = i;
  }
  ASSERT_GE(number, 0);
  order.read(dataset, number, tokens);
  ASSERT_GT(std::count(tokens.begin(), tokens.end(), 7), kSequence / 4);
  const int64_t step = number / 8;
  const std::string start = (folder_ / "start.h5").string();
  const std::string common =
      fmt::format("--run.steps={} --data.path={} --data.split=1 --batch.sequence={}", step + 1,
                  prefix.string(), kSequence);
  make_weights(folder_.path(), start, fmt::format("--step={} {}", step, common));
  train("end", 2,
        {fmt::format("run.steps={}", step + 1), "data.path=" + prefix.string(), "data.split=1",
         fmt::format("batch.sequence={}", kSequence), "grid.dp=2", "checkpoint.load=" + start});
  const Steps steps = logged("end");
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps.begin()->first, step + 1);
  EXPECT_TRUE(
      steps.begin()->second.contains({number, fmt::format("{:016x}", sum_of_tokens(tokens))}));
  ASSERT_EQ(read_metrics(folder_ / "end").size(), 1u);
  fmt::print("measured: {} tokens, step {} reads sample {} with the last ones\n", dataset.tokens(),
             step + 1, number);
}

}  // namespace
}  // namespace trireme::test
