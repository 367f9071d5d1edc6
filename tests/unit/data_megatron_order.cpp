// Megatron-Core's own sample order: token windows of random datasets, splits and blends against
// what its classes handed out (tools/megatron_order.py wrote the file).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "support/data_files.hpp"
#include "support/sha256.hpp"
#include "trireme/data/token_source.hpp"

namespace trireme {
namespace {

using nlohmann::json;
using test::TempDir;

// The datasets of a case, as tools/megatron_order.py describes them.
std::vector<int32_t> lengths_of(const json& dataset) {
  auto state = dataset.at("start").get<uint64_t>();
  const auto longest = dataset.at("longest").get<uint64_t>();
  std::vector<int32_t> lengths;
  for (int i = 0; i < dataset.at("documents").get<int>(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t value = state >> 33;
    lengths.push_back(value % 13 == 0 ? 0 : static_cast<int32_t>(1 + value % longest));
  }
  return lengths;
}

void write_datasets(const TempDir& folder, const json& datasets) {
  for (size_t number = 0; number < datasets.size(); ++number) {
    const std::vector<int32_t> lengths = lengths_of(datasets[number]);
    IndexedDatasetWriter writer(
        {folder / std::to_string(number), TokenType::i32, INT32_MAX, false});
    auto next = static_cast<int32_t>(1000000 * number);
    for (int32_t length : lengths) {
      std::vector<int32_t> tokens(static_cast<size_t>(length));
      std::iota(tokens.begin(), tokens.end(), next);
      next += length;
      writer.append(tokens);
      writer.end_sequence();
      writer.end_document();
    }
    writer.commit();
  }
}

std::string words_of(const TempDir& folder, const json& blend) {
  if (blend.is_null()) return "";
  std::string words;
  for (size_t i = 0; i < blend.at("datasets").size(); ++i) {
    if (!blend.at("weights").is_null()) words += blend.at("weights")[i].dump() + " ";
    words += folder / blend.at("datasets")[i].dump();
    words += " ";
  }
  return words;
}

DataOptions options_of(const TempDir& folder, const json& one) {
  DataOptions options;
  options.kind = DataKind::indexed;
  options.sequence = one.at("sequence");
  options.seed = one.at("seed");
  options.vocab = 1 << 30;
  const json& blends = one.at("blends");
  if (one.at("split").is_null()) {
    options.train_path = words_of(folder, blends[0]);
    options.validation_path = words_of(folder, blends[1]);
    options.test_path = words_of(folder, blends[2]);
  } else {
    options.path = words_of(folder, blends[0]);
    options.split = one.at("split");
  }
  return options;
}

void compare(const TokenSource& source, const json& want, int64_t sequence) {
  std::vector<int32_t> tokens(static_cast<size_t>(sequence) + 1);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < want.at("compared").get<int64_t>(); ++i) {
    source.sample(i, tokens);
    all.insert(all.end(), tokens.begin(), tokens.end());
    const bool kept = want.contains("windows") && i < std::ssize(want.at("windows"));
    if (kept) {
      EXPECT_EQ(json(tokens), want.at("windows")[static_cast<size_t>(i)]) << "sample " << i;
    }
  }
  EXPECT_EQ(test::Sha256::hex(std::as_bytes(std::span(all))).substr(0, 32),
            want.at("sha256").get<std::string>());
}

TEST(MegatronOrder, TwoHundredRandomCases) {
  const json golden = json::parse(test::read_file(TRIREME_TEST_DATA "/megatron_order.json"));
  ASSERT_EQ(golden.at("cases").size(), 200u);
  int64_t windows = 0;
  for (size_t k = 0; k < golden.at("cases").size(); ++k) {
    const json& one = golden.at("cases")[k];
    SCOPED_TRACE("case " + std::to_string(k));
    const TempDir folder;
    write_datasets(folder, one.at("datasets"));
    const DataOptions base = options_of(folder, one);
    for (size_t part = 0; part < kSplits; ++part) {
      const json& want = one.at("parts")[part];
      if (want.is_null()) continue;
      DataOptions options = base;
      const int64_t samples = one.at("samples")[part];
      // A blend without weights gives no more than one pass; Megatron then hands out fewer.
      const int64_t asked = std::min(samples, want.at("compared").get<int64_t>());
      (part == 0   ? options.train_samples
       : part == 1 ? options.validation_samples
                   : options.test_samples) = asked;
      const DataSources sources = open_data(options);
      const TokenSource* source = part == 0   ? sources.train.get()
                                  : part == 1 ? sources.validation.get()
                                              : sources.test.get();
      ASSERT_NE(source, nullptr);
      compare(*source, want, options.sequence);
      windows += want.at("compared").get<int64_t>();
    }
    if (HasFailure()) return;
  }
  RecordProperty("windows", std::to_string(windows));
}

}  // namespace
}  // namespace trireme
