// Blends: words, sizes and order against Megatron's documented values; blends of files, llm.c's
// shards among them; named validation sets; masks of prompts.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>

#include "support/data_files.hpp"
#include "support/tokenize_shares.hpp"
#include "trireme/data/blend.hpp"
#include "trireme/data/blend_order.hpp"
#include "trireme/data/llmc_dataset.hpp"
#include "trireme/data/token_source.hpp"
#include "trireme/data/tokenize_text.hpp"

namespace trireme {
namespace {

using test::expect_error;
using test::TempDir;
using Places = std::vector<std::pair<int64_t, int64_t>>;

Places places_of(const BlendOrder& order) {
  Places places;
  for (int64_t i = 0; i < order.samples(); ++i)
    places.emplace_back(order.at(i).dataset, order.at(i).sample);
  return places;
}

std::shared_ptr<IndexMemory> memory() {
  return std::make_shared<IndexMemory>();
}

TEST(BlendOrder, MegatronsValues) {
  EXPECT_EQ(places_of(BlendOrder::weighted(std::vector{.5, .25, .25}, 8, memory())),
            (Places{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {1, 1}, {2, 1}, {0, 3}}));
  EXPECT_EQ(places_of(BlendOrder::weighted(std::vector{3., 7.}, 12, memory())), (Places{{1, 0},
                                                                                        {0, 0},
                                                                                        {1, 1},
                                                                                        {1, 2},
                                                                                        {0, 1},
                                                                                        {1, 3},
                                                                                        {1, 4},
                                                                                        {0, 2},
                                                                                        {1, 5},
                                                                                        {1, 6},
                                                                                        {0, 3},
                                                                                        {1, 7}}));
  EXPECT_EQ(
      places_of(BlendOrder::exhaustive(std::vector<int64_t>{2, 5, 3}, memory())),
      (Places{{1, 0}, {2, 0}, {0, 0}, {1, 1}, {2, 1}, {1, 2}, {0, 1}, {1, 3}, {2, 2}, {1, 4}}));
}

// 19 datasets of odd weights over several rows of counts, against the rule written out.
TEST(BlendOrder, FollowsTheRuleForManyDatasets) {
  std::vector<double> weights;
  for (int d = 0; d < 19; ++d) weights.push_back(0.1 + d * d % 7);
  const BlendOrder order = BlendOrder::weighted(weights, 5000, memory());
  const std::vector<double> w = normalized(weights);
  std::vector<int64_t> counts(w.size());
  for (int64_t i = 0; i < order.samples(); ++i) {
    const double x = std::max(static_cast<double>(i), 1.0);
    size_t best = 0;
    double most = -1e300;
    for (size_t d = 0; d < w.size(); ++d) {
      volatile const double product = w[d] * x;  // rounded before the difference
      const double error = product - static_cast<double>(counts[d]);
      if (error > most) most = error, best = d;
    }
    ASSERT_EQ(order.at(i), (BlendOrder::Place{static_cast<int64_t>(best), counts[best]})) << i;
    ++counts[best];
  }
  EXPECT_TRUE(std::ranges::equal(order.used(), counts));
}

TEST(Blend, Sizes) {
  const BlendSizes sizes = blend_sizes(std::vector{.3, .7}, 1000);
  EXPECT_EQ(sizes.used, (std::vector<int64_t>{300, 700}));
  EXPECT_EQ(sizes.prepared, (std::vector<int64_t>{302, 704}));
  EXPECT_EQ(sizes.samples, 1000);
}

TEST(Blend, Words) {
  EXPECT_EQ(parse_blend("a b c").paths, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(parse_blend("a b").paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(parse_blend("a b").weights.empty());
  const Blend pairs = parse_blend(" 30 a\n7e1\tb ");
  EXPECT_EQ(pairs.paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(pairs.weights, (std::vector<double>{30, 70}));
  EXPECT_EQ(parse_blend("1 2 3").paths.size(), 3u);
  expect_error(ExitCode::bad_config, {"\"x\"", "weight"}, [] { parse_blend("1 a x b"); });
  for (const char* weight : {"0", "-1", "nan", "inf", "1e999"})
    expect_error(ExitCode::bad_config, {"not above 0"},
                 [&] { parse_blend(std::string(weight) + " a 1 b"); });
  expect_error(ExitCode::bad_config, {"no datasets"}, [] { parse_blend("  "); });
}

TEST(Blend, NamedSets) {
  const std::vector<NamedBlend> sets = parse_named_blends("web: a; code-2 : 0.5 b 0.5 c;");
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].name, "web");
  EXPECT_EQ(sets[1].name, "code-2");
  EXPECT_EQ(sets[1].blend.weights.size(), 2u);
  for (const char* text : {"a", ": a", "two words: a", "a: x; a: y", "validation: a", "a.b: c"})
    expect_error(ExitCode::bad_config, {"name"}, [&] { parse_named_blends(text); });
}

// Datasets 0, 1, ... of `documents` documents of 5 tokens; ids are 1000 * number + position.
class BlendFiles : public ::testing::Test {
 protected:
  std::string make(int number, int documents) const {
    const std::string prefix = folder_ / ("set" + std::to_string(number));
    IndexedDatasetWriter writer({prefix, TokenType::i32, INT32_MAX, false});
    int32_t id = 1000 * number;
    for (int d = 0; d < documents; ++d) {
      writer.append(std::vector<int32_t>{id, id + 1, id + 2, id + 3, id + 4});
      id += 5;
      writer.end_document();
    }
    writer.commit();
    return prefix;
  }
  static std::vector<int> datasets_of(const TokenSource& source, int64_t samples) {
    std::vector<int> numbers;
    std::vector<int32_t> tokens(5);
    for (int64_t i = 0; i < samples; ++i) {
      source.sample(i, tokens);
      numbers.push_back(tokens[0] / 1000);
    }
    return numbers;
  }
  TempDir folder_;
  DataOptions options_{.kind = DataKind::indexed, .sequence = 4, .vocab = 1000000};
};

TEST_F(BlendFiles, TextFileAndJson) {
  const std::string a = make(0, 20), b = make(1, 20);
  options_.path = "0.3 " + a + " 0.7 " + b;
  options_.split = "8,2,0";
  options_.train_samples = 12;
  const std::vector<int> want{1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1};
  EXPECT_EQ(datasets_of(*open_data(options_).train, 12), want);
  test::write_file(folder_ / "list", options_.path + "\n");
  options_.path = "@" + (folder_ / "list");
  EXPECT_EQ(datasets_of(*open_data(options_).train, 12), want);
  test::write_file(folder_ / "parts.json", R"({"train": ["0.3", ")" + a + R"(", 0.7, ")" + b +
                                               R"("], "valid": ")" + b + "\"}");
  options_.path = "@" + (folder_ / "parts.json");
  options_.validation_samples = 3;
  const DataSources sources = open_data(options_);
  EXPECT_EQ(datasets_of(*sources.train, 12), want);
  EXPECT_EQ(datasets_of(*sources.validation, 3), (std::vector<int>{1, 1, 1}));
  test::write_file(folder_ / "parts.json", R"({"train": "x", "dev": "y"})");
  expect_error(ExitCode::bad_data, {"dev", "train, valid and test"}, [&] { open_data(options_); });
  options_.path = "@" + (folder_ / "absent");
  expect_error(ExitCode::no_input, {"absent"}, [&] { open_data(options_); });
}

TEST_F(BlendFiles, WithoutWeightsOnePassIsAllThereIs) {
  options_.path = make(0, 20) + " " + make(1, 60) + " " + make(2, 40);
  options_.split = "1";
  options_.train_samples = kOneEpoch;
  const DataSources all = open_data(options_);
  EXPECT_EQ(all.train->samples(), 24 + 74 + 49);
  std::vector<int> seen = datasets_of(*all.train, all.train->samples());
  EXPECT_EQ(std::ranges::count(seen, 1), 74);
  options_.train_samples = 148;
  expect_error(ExitCode::bad_config, {"148", "147", "weights"}, [&] { open_data(options_); });
  options_.path = "1 " + options_.path.substr(0, options_.path.find(' '));
  options_.train_samples = kOneEpoch;
  expect_error(ExitCode::bad_config, {"weights"}, [&] { open_data(options_); });
}

TEST_F(BlendFiles, NamedValidationSets) {
  options_.path = make(0, 20);
  options_.split = "1,0,0";
  options_.train_samples = 5;
  options_.validation_samples = 4;
  expect_error(ExitCode::bad_config, {"validation"}, [&] { open_data(options_); });
  options_.validation_sets = "one: " + make(1, 20) + "; two: " + make(2, 20) + " " + make(3, 20);
  const DataSources sources = open_data(options_);
  EXPECT_EQ(sources.validation, nullptr);
  ASSERT_EQ(sources.validation_sets.size(), 2u);
  EXPECT_EQ(sources.validation_sets[0].name, "one");
  EXPECT_EQ(datasets_of(*sources.validation_sets[0].source, 4), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(datasets_of(*sources.validation_sets[1].source, 4), (std::vector<int>{2, 3, 2, 3}));
}

TEST_F(BlendFiles, SharedIndicesGiveTheSameSamples) {
  options_.path = "2 " + make(0, 300) + " 1 " + make(1, 30);
  options_.train_samples = 700;
  options_.validation_samples = 9;
  const auto built = IndexMemory::shared();
  ASSERT_NE(built, nullptr);
  const DataSources here = open_data(options_, built);
  const auto mapped = IndexMemory::attach(built->handle());
  ASSERT_NE(mapped, nullptr);
  EXPECT_TRUE(mapped->built());
  const DataSources there = open_data(options_, mapped);
  EXPECT_EQ(mapped->bytes(), built->bytes());
  std::vector<int32_t> a(5), b(5);
  for (int64_t i = 0; i < 700; ++i) {
    here.train->sample(i, a);
    there.train->sample(i, b);
    ASSERT_EQ(a, b) << i;
  }
  options_.train_samples = 70000000;  // more than was built
  expect_error(ExitCode::internal, {"of other data"},
               [&] { open_data(options_, IndexMemory::attach(built->handle())); });
}

TEST_F(BlendFiles, ThreeHundredDatasetsOpenFast) {
  std::string words;
  for (int d = 0; d < 300; ++d) words += std::to_string(1 + d % 5) + " " + make(d, 200) + " ";
  options_.path = "@" + (folder_ / "list");
  test::write_file(folder_ / "list", words);
  options_.train_samples = 100000;
  options_.validation_samples = 1000;
  const auto start = std::chrono::steady_clock::now();
  const DataSources sources = open_data(options_);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("measured: a blend of 300 datasets, {} samples, opens in {:.2f} s\n",
             sources.train->samples(), seconds);
  EXPECT_GE(sources.train->samples(), 100000);
  EXPECT_LT(seconds, 2 * 10);  // 2 s on a machine that does nothing else
}

// Memory of this process alone, in bytes; shared and mapped pages are not in it.
int64_t own_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("RssAnon:")) return 1024 * std::strtoll(line.c_str() + 8, nullptr, 10);
  return 0;
}

TEST_F(BlendFiles, MemoryOfARankDoesNotGrowWithTheCorpus) {
  IndexedDatasetWriter writer({folder_ / "many", TokenType::u16, INT32_MAX, false});
  for (int d = 0; d < 1000000; ++d) {
    writer.append(std::vector<int32_t>{d % 100, 1, 2});
    writer.end_document();
  }
  writer.commit();
  options_.path = folder_ / "many";
  options_.split = "1";
  options_.train_samples = 2000000;
  const auto built = IndexMemory::shared();
  const DataSources here = open_data(options_, built);
  const int64_t before = own_memory();
  const auto mapped = IndexMemory::attach(built->handle());
  const DataSources there = open_data(options_, mapped);
  std::vector<int32_t> tokens(5);
  for (int64_t i = 0; i < 2000000; i += 997) there.train->sample(i, tokens);
  const int64_t grown = own_memory() - before;
  fmt::print("measured: 10^6 documents: {} bytes of index shared, {} of a further rank's own\n",
             mapped->bytes(), grown);
  EXPECT_GT(mapped->bytes(), 20000000);
  EXPECT_LT(grown, 1000000);
}

TEST_F(BlendFiles, MoreFilesThanAProcessMayOpenAtFirst) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  if (old.rlim_max < 300) GTEST_SKIP() << "the limit of open files is " << old.rlim_max;
  rlimit small = old;
  small.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  for (int d = 0; d < 100; ++d) options_.path += "1 " + make(d, 20) + " ";
  options_.train_samples = 1000;
  EXPECT_GE(open_data(options_).train->samples(), 1000);
  ::setrlimit(RLIMIT_NOFILE, &old);
}

std::string shard(std::vector<int32_t> header, const std::vector<uint32_t>& ids, size_t width) {
  header.resize(256);
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  for (uint32_t id : ids) bytes.append(reinterpret_cast<const char*>(&id), width);
  return bytes;
}

TEST_F(BlendFiles, ShardsOfLlmc) {
  test::write_file(folder_ / "fw_train_000002.bin",
                   shard({20240520, 1, 6}, {999, 11, 12, 13, 14, 15}, 2));
  test::write_file(folder_ / "fw_train_000001.bin", shard({20240520, 1, 5}, {999, 1, 2, 3, 4}, 2));
  test::write_file(folder_ / "l3.bin", shard({20240801, 7, 3}, {128000, 70000, 5}, 4));
  const LlmcDataset both(folder_ / "fw_train_*.bin", 1000);
  ASSERT_EQ(both.sequences().count(), 2);
  std::vector<int32_t> tokens(11);
  both.read_across(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{999, 1, 2, 3, 4, 999, 11, 12, 13, 14, 15}));
  std::vector<int32_t> three(3);
  LlmcDataset(folder_ / "l3.bin", 0).read(0, 0, three);
  EXPECT_EQ(three, (std::vector<int32_t>{128000, 70000, 5}));
  expect_error(ExitCode::bad_data, {"byte 1024", "128000", "1000"},
               [&] { LlmcDataset(folder_ / "l3.bin", 1000).read(0, 0, three); });
  options_.train_path = folder_ / "fw_train_*.bin";
  options_.train_samples = 2;
  EXPECT_EQ(open_data(options_).train->samples(), 2);
  options_.train_path = folder_ / "none_*.bin";
  expect_error(ExitCode::no_input, {"none_*.bin"}, [&] { open_data(options_); });
}

TEST_F(BlendFiles, DamagedShardsOfLlmc) {
  const auto refuse = [&](const std::string& bytes, const std::vector<std::string>& words) {
    test::write_file(folder_ / "x.bin", bytes);
    expect_error(ExitCode::bad_data, words, [&] { LlmcDataset(folder_ / "x.bin", 0); });
  };
  const std::string good = shard({20240520, 1, 4}, {1, 2, 3, 4}, 2);
  refuse(good.substr(0, 700), {"byte 700", "header"});
  refuse(good.substr(0, good.size() - 1), {"ends at byte 1031"});
  refuse(good + "x", {"should end at byte 1032"});
  refuse(shard({20240521, 1, 4}, {1, 2, 3, 4}, 2), {"byte 0", "20240521"});
  refuse(shard({20240801, 1, 2}, {1, 2}, 4), {"byte 4", "version 1"});
  refuse(shard({20240520, 1, -4}, {}, 2), {"byte 8", "-4"});
  refuse("", {"byte 0"});
}

TEST_F(BlendFiles, MasksOfPrompts) {
  const ByteTokenizer tokenizer;
  test::write_file(folder_ / "a.jsonl",
                   "{\"prompt\": \"ab\", \"answer\": \"xyz\"}\n"
                   "{\"prompt\": \"\", \"answer\": \"q\"}\n"
                   "{\"prompt\": \"only\", \"answer\": \"\"}\n"
                   "{\"prompt\": \"cd\", \"answer\": \"uv\"}\n");
  TokenizeOptions how;
  how.inputs = {folder_ / "a.jsonl"};
  how.tokenizer = &tokenizer;
  how.key = "answer";
  how.prompt_key = "prompt";
  how.output = folder_ / "whole";
  const TokenizeReport report = tokenize_text_files(how);
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.empty_documents, 1);
  const IndexedDataset whole(how.output), mask(how.output + ".mask", 2);
  EXPECT_EQ(mask.type(), TokenType::u8);
  std::vector<int32_t> tokens(13), flags(13);
  whole.read_across(0, tokens);
  mask.read_across(0, flags);
  EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 'b', 'x', 'y', 'z', 256, 'q', 256, 'c', 'd', 'u',
                                          'v', 256}));
  EXPECT_EQ(flags, (std::vector<int32_t>{0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1}));

  how.output = folder_ / "parts";
  test::tokenize_in_shares(how, 2, 3);
  for (const char* file : {".bin", ".idx", ".mask.bin", ".mask.idx"})
    EXPECT_EQ(test::read_file(folder_ / ("whole" + std::string(file))),
              test::read_file(folder_ / ("parts" + std::string(file))));
  EXPECT_EQ(folder_.names().size(), 9u);

  const std::vector<std::string> twice{folder_ / "whole", folder_ / "parts"};
  merge_datasets(twice, folder_ / "merged");
  EXPECT_EQ(IndexedDataset(folder_ / "merged.mask").tokens(), 26);
  const std::vector<std::string> mixed{folder_ / "whole", make(1, 3)};
  expect_error(ExitCode::bad_data, {"1 of 2", "mask"},
               [&] { merge_datasets(mixed, folder_ / "mixed"); });

  options_.path = folder_ / "whole";
  options_.split = "1";
  options_.train_samples = kOneEpoch;
  options_.loss_mask = true;
  options_.order = DataOrder::megatron;
  const DataSources sources = open_data(options_);
  ASSERT_TRUE(sources.train->flagged());
  std::vector<int32_t> sample(5), counted(5);
  for (int64_t i = 0; i < sources.train->samples(); ++i) {
    sources.train->sample(i, sample);
    sources.train->flags(i, counted);
    for (size_t k = 0; k < 5; ++k)
      EXPECT_EQ(counted[k] == 0,
                std::string("abcd").find(static_cast<char>(sample[k])) != std::string::npos &&
                    sample[k] < 256)
          << sample[k];
  }
  test::write_file(folder_ / "parts.mask.idx", test::read_file(folder_ / "merged.mask.idx"));
  test::write_file(folder_ / "parts.mask.bin", test::read_file(folder_ / "merged.mask.bin"));
  options_.path = folder_ / "parts";
  expect_error(ExitCode::bad_data, {"parts.mask", "another dataset"}, [&] { open_data(options_); });
  options_.path = make(1, 3);
  expect_error(ExitCode::no_input, {"set1.mask"}, [&] { open_data(options_); });
}

}  // namespace
}  // namespace trireme
