// The loader gives each rank its rows of the global batch, whatever the cut, masks what lies behind
// the end, and reads nothing on stages that need nothing.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/train/batch_loader.hpp"

namespace trireme::test {
namespace {

// Sample k holds the tokens k, k + 1, ... ; remembers what was read.
class CountingSource : public TokenSource {
 public:
  int64_t samples() const override { return 1000; }
  void sample(int64_t index, std::span<int32_t> tokens) const override {
    read.push_back(index);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(index + i);
  }
  std::string description() const override { return "counting"; }
  mutable std::vector<int64_t> read;
};

struct Rank {
  Rank(int ranks, const std::vector<std::string>& words, int rank)
      : settings(parse_deck("[run]\nsteps = 3\n[model]\nfamily = gpt2\nlayers = 4\nhidden = 8\n"
                            "heads = 2\nvocab = 2000\n[batch]\nsequence = 5\nglobal = 12\n"
                            "micro = 1\n",
                            "loader.ini", words, ranks)
                     .settings),
        grid(grid_shape(settings, ranks)),
        plan(rank_plan(settings, grid, coord_of(rank, grid))),
        walk{settings.batch.global, settings.batch.micro, grid.dp},
        device({}) {
    Arena dry = Arena::dry();
    { const BatchMemory walked(plan, dry); }
    arena.emplace(Arena::real(dry.high_water_bytes()));
    memory.emplace(plan, *arena);
    loader.emplace(plan, *memory, TargetOptions{}, device.compute());
  }
  Settings settings;
  GridShape grid;
  RankPlan plan;
  BatchWalk walk;
  Device device;
  std::optional<Arena> arena;
  std::optional<BatchMemory> memory;
  std::optional<BatchLoader> loader;
};

// Sample numbers of the rows in a batch: the first token of each.
std::vector<int64_t> samples_of(const StepBatch& batch, int64_t micro, int64_t sequence) {
  std::vector<int64_t> samples;
  for (const MicroBatch& m : batch.micro_batches)
    for (int64_t row = 0; row < micro; ++row)
      samples.push_back(m.tokens.host<int32_t>()[static_cast<size_t>(row * sequence)]);
  return samples;
}

TEST(BatchLoader, RanksReadDisjointPartsOfTheSameBatch) {
  for (const auto& [ranks, micro] : {std::pair{1, 1}, {1, 4}, {2, 3}, {3, 2}, {4, 1}}) {
    std::multiset<int64_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
      Rank r(ranks, {"--batch.micro=" + std::to_string(micro)}, rank);
      CountingSource source;
      r.loader->prepare(&source, r.walk, 24, 1000);
      const StepBatch batch = r.loader->upload(r.device.compute());
      EXPECT_EQ(std::ssize(batch.micro_batches), 12 / (ranks * micro));
      for (const int64_t sample : samples_of(batch, micro, 5)) all.insert(sample);
      for (const MicroBatch& m : batch.micro_batches) {
        EXPECT_EQ(m.sample_offset, m.tokens.host<int32_t>()[0] - 24);
        for (size_t i = 0; i < static_cast<size_t>(5 * micro); ++i) {
          EXPECT_EQ(m.targets.host<int32_t>()[i], m.tokens.host<int32_t>()[i] + 1);
          EXPECT_EQ(m.positions.host<int32_t>()[i], static_cast<int32_t>(i % 5));
          EXPECT_EQ(m.mask.host<float>()[i], 1.0f);
        }
      }
    }
    std::multiset<int64_t> want;
    for (int64_t sample = 24; sample < 36; ++sample) want.insert(sample);
    EXPECT_EQ(all, want) << ranks << " ranks, micro-batch " << micro;
  }
}

TEST(BatchLoader, RowsBehindTheEndDoNotCount) {
  Rank r(1, {"--batch.micro=4"}, 0);
  CountingSource source;
  r.loader->prepare(&source, r.walk, 36, 41);  // five samples are left of twelve
  const StepBatch batch = r.loader->upload(r.device.compute());
  double counted = 0;
  for (const MicroBatch& m : batch.micro_batches)
    for (const float mask : m.mask.host<float>()) counted += mask;
  EXPECT_EQ(counted, 5 * 5);
  for (const int64_t sample : source.read) EXPECT_LT(sample, 41);
}

TEST(BatchLoader, OnlyTheEndsOfThePipelineReadAndOnlyOnce) {
  for (int stage = 0; stage < 4; ++stage) {
    Rank r(4, {"--grid.pp=4"}, stage);
    EXPECT_EQ(r.loader->reads(), stage == 0 || stage == 3);
    CountingSource source;
    const bool reads = r.loader->reads();
    r.loader->prepare(reads ? &source : nullptr, r.walk, 0, 1000);
    r.loader->prepare(reads ? &source : nullptr, r.walk, 0, 1000);
    EXPECT_EQ(source.read.size(), reads ? 12u : 0u);
    const StepBatch batch = r.loader->upload(r.device.compute());
    EXPECT_EQ(batch.micro_batches.size(), 12u);
    EXPECT_EQ(batch.micro_batches[0].tokens.empty(), stage != 0);
    EXPECT_EQ(batch.micro_batches[0].targets.empty(), stage != 3);
  }
}

// Sample k holds k, k + 1, ...: token 14 ends a document at place 2 of sample 12, and so on. Every
// stage then reads, for its own positions and starts.
TEST(BatchLoader, DocumentsResetPositionsAndAttention) {
  for (int stage = 0; stage < 3; ++stage) {
    Rank r(3,
           {"--grid.pp=3", "--batch.micro=2", "--data.eod=14", "--data.reset_positions=true",
            "--data.reset_attention=true"},
           stage);
    EXPECT_TRUE(r.loader->reads());
    CountingSource source;
    r.loader->prepare(&source, r.walk, 12, 1000);
    const StepBatch batch = r.loader->upload(r.device.compute());
    const auto values = [](const TensorView& view) {
      const auto span = view.host<int32_t>();
      return std::vector<int32_t>(span.begin(), span.end());
    };
    using Row = std::vector<int32_t>;
    const std::vector<MicroBatch>& m = batch.micro_batches;
    EXPECT_EQ(values(m[0].starts), (Row{0, 0, 0, 3, 3, 0, 0, 2, 2, 2}));  // samples 12, 13
    EXPECT_EQ(values(m[0].positions), (Row{0, 1, 2, 0, 1, 0, 1, 0, 1, 2}));
    EXPECT_EQ(values(m[1].starts), (Row{0, 1, 1, 1, 1, 0, 0, 0, 0, 0}));  // 14, 15
    EXPECT_EQ(values(m[1].positions), (Row{0, 0, 1, 2, 3, 0, 1, 2, 3, 4}));
  }
  Rank plain(1, {"--batch.micro=2", "--data.eod=14", "--data.reset_positions=true"}, 0);
  CountingSource source;
  plain.loader->prepare(&source, plain.walk, 12, 1000);
  const StepBatch batch = plain.loader->upload(plain.device.compute());
  EXPECT_TRUE(batch.micro_batches[0].starts.empty());
}

// The next batch is read while the device may still copy the one before.
TEST(BatchLoader, PreparingTheNextBatchLeavesTheLastAlone) {
  Rank r(1, {}, 0);
  CountingSource source;
  r.loader->prepare(&source, r.walk, 0, 1000);
  r.loader->upload(r.device.compute());
  r.loader->prepare(&source, r.walk, 12, 1000);
  const StepBatch second = r.loader->upload(r.device.compute());
  EXPECT_EQ(samples_of(second, 1, 5).front(), 12);
  EXPECT_EQ(source.read.size(), 24u);
  // Another order of calls reads what is asked for, not what was prepared.
  r.loader->prepare(&source, r.walk, 24, 1000);
  r.loader->prepare(&source, r.walk, 48, 1000);
  EXPECT_EQ(samples_of(r.loader->upload(r.device.compute()), 1, 5).front(), 48);
}

}  // namespace
}  // namespace trireme::test
