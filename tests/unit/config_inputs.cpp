// The decks in inputs/ and doc/input.md, against published sizes and the table of settings.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/config/reference.hpp"

namespace trireme {
namespace {

std::filesystem::path source_root() {
  return std::filesystem::path(TRIREME_TEST_DATA).parent_path().parent_path();
}

Settings deck_settings(const std::string& name, const std::vector<std::string>& overrides = {},
                       int ranks = 0) {
  return read_deck((source_root() / "inputs" / name).string(), overrides, ranks).settings;
}

struct Golden {
  int64_t parameters;
  int64_t gemm_flops;  // for each token: 6 x parameters in products; 0: none published
  int64_t full_flops;  // with the full attention square
  int ranks;           // the deck's own smallest number of ranks
};

// Parameters as published (or as their released configurations add up); FLOPs of the sequence
// length of the deck. 8B and 70B: the integers of NVIDIA's DGX Cloud benchmarking recipes.
const std::map<std::string, Golden>& golden() {
  static const std::map<std::string, Golden> table = {
      {"gpt2_124m.ini", {124439808, 741192192, 854438400, 1}},
      {"gpt2_350m.ini", {354823168, 0, 0, 1}},
      {"gpt2_774m.ini", {774030080, 0, 0, 1}},
      {"gpt2_1558m.ini", {1557611200, 0, 0, 1}},
      {"gpt3_1.3b.ini", {1315723264, 0, 0, 1}},
      {"gpt3_175b.ini", {174604259328, 0, 0, 64}},
      {"llama3_1b.ini", {1235814400, 0, 0, 1}},
      {"llama3_3b.ini", {3212749824, 0, 0, 2}},
      {"llama3_8b.ini", {8030261248, 45027950592, 57912852480, 4}},
      {"llama3_70b.ini", {70553706496, 417010286592, 481434796032, 32}},
      {"llama3_405b.ini", {405853388800, 0, 0, 128}},
      {"tiny.ini", {0, 0, 0, 4}},
      {"shakespeare_char.ini", {0, 0, 0, 1}},
      {"shakespeare_char_gpu.ini", {0, 0, 0, 1}},
  };
  return table;
}

TEST(Inputs, EveryDeckIsValidAndListedHere) {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_root() / "inputs")) {
    const std::string name = entry.path().filename().string();
    ASSERT_TRUE(golden().contains(name)) << name << " has no row in this test";
    const int ranks = golden().at(name).ranks;
    EXPECT_EQ(grid_shape(deck_settings(name, {}, ranks), ranks).ranks(), ranks) << name;
    ++found;
  }
  EXPECT_EQ(found, golden().size());
}

TEST(Inputs, ParametersAreThePublishedOnes) {
  for (const auto& [name, expected] : golden())
    if (expected.parameters > 0) {
      EXPECT_EQ(model_shape(deck_settings(name)).parameters(), expected.parameters) << name;
    }
}

TEST(Inputs, FlopsAreThePublishedOnes) {
  for (const auto& [name, expected] : golden()) {
    if (expected.full_flops == 0) continue;
    const Settings settings = deck_settings(name);
    const ModelShape shape = model_shape(settings);
    const int64_t sequence = settings.batch.sequence;
    EXPECT_EQ(6 * shape.product_parameters(), expected.gemm_flops) << name;
    EXPECT_EQ(shape.flops_per_token_full(sequence), expected.full_flops) << name;
    EXPECT_EQ(shape.flops_per_token(sequence), (expected.gemm_flops + expected.full_flops) / 2)
        << name;
  }
}

// Published to three or four digits, in GFLOP for each token: causal attention at half.
TEST(Inputs, FlopsMatchPublishedTables) {
  const auto gigaflops = [](const std::string& name, const std::vector<std::string>& overrides) {
    const Settings settings = deck_settings(name, overrides);
    return 1e-9 *
           static_cast<double>(model_shape(settings).flops_per_token(settings.batch.sequence));
  };
  EXPECT_NEAR(gigaflops("gpt2_124m.ini", {}), 0.798, 0.0005);
  EXPECT_NEAR(gigaflops("gpt2_1558m.ini", {}), 9.802, 0.0005);
  EXPECT_NEAR(gigaflops("llama3_1b.ini", {}), 8.220, 0.0005);
  EXPECT_NEAR(gigaflops("llama3_3b.ini", {}), 21.39, 0.005);
  EXPECT_NEAR(gigaflops("llama3_8b.ini", {}), 51.47, 0.005);
  EXPECT_NEAR(gigaflops("llama3_70b.ini", {}), 449.2, 0.05);
  EXPECT_NEAR(gigaflops("llama3_405b.ini", {}), 2524, 0.5);
  EXPECT_NEAR(gigaflops("gpt3_175b.ini", {"--model.vocab=51200"}), 1062, 0.5);
}

TEST(Inputs, ShakespeareIsTheCpuRunOfNanoGpt) {
  const Settings s = deck_settings("shakespeare_char.ini");
  const ModelShape shape = model_shape(s);
  EXPECT_EQ(shape.layers, 4);
  EXPECT_EQ(shape.heads, 4);
  EXPECT_EQ(shape.hidden, 128);
  EXPECT_EQ(shape.max_sequence, 64);
  EXPECT_FALSE(shape.bias);
  EXPECT_EQ(shape.dropout, 0);
  EXPECT_EQ(s.batch.global, 12);
  EXPECT_EQ(s.run.steps, 2000);
  // 4 layers of 12 x 128^2 products and two gains, the final gain, positions and the tied table.
  EXPECT_EQ(shape.parameters(), 4 * (12 * 128 * 128 + 2 * 128) + 128 + 64 * 128 + 257 * 128);
}

TEST(Inputs, DocumentIsThatOfTheTable) {
  std::ifstream file(source_root() / "doc" / "input.md", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), input_reference_markdown())
      << "doc/input.md is out of date; write it anew with: trireme plan --print-reference > "
         "doc/input.md";
}

TEST(Reference, HelpCoversEveryKey) {
  const std::string help = settings_help("");
  for (const Setting& row : settings_table()) {
    EXPECT_NE(help.find("  " + row.name + "\n"), std::string::npos) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_EQ(row.help.back(), '.') << row.name;
    EXPECT_EQ(row.help.find('|'), std::string::npos) << row.name << ": ends a cell of doc/input.md";
  }
  EXPECT_NE(settings_help("grid.tp").find("1 to 32768; unit: ranks; default: 1"),
            std::string::npos);
  EXPECT_EQ(settings_help("grid").find("[model]"), std::string::npos);
  EXPECT_NE(settings_help("grid.to").find("nearest valid key is grid.tp"), std::string::npos);
}

// Every section of the table is announced and the other way round; names are unique.
TEST(Reference, SectionsAndRowsAgree) {
  std::map<std::string, int> rows, names;
  for (const Setting& row : settings_table()) {
    ++rows[row.section()];
    EXPECT_EQ(++names[row.name], 1) << row.name;
  }
  EXPECT_EQ(rows.size(), setting_sections().size());
  for (const SettingSection& section : setting_sections()) EXPECT_GT(rows[section.name], 0);
}

}  // namespace
}  // namespace trireme
