// The planned bytes of a rank are those of the formulas: 12 bytes a parameter and replica for the
// optimizer, activations by policy and split, micro-batches in flight by stage; every option that
// takes memory changes the plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/train/rank_plan.hpp"

namespace trireme::test {
namespace {

using Lines = std::vector<std::string>;

// Sizes whose pieces are whole multiples of the arena's alignment: no padding anywhere.
constexpr int64_t kHidden = 64, kHeads = 4, kKv = 2, kFfn = 192, kLayers = 8, kTokens = 128;

struct Planned {
  RankPlan plan;
  std::vector<ArenaLine> lines;
  int64_t of(const std::string& purpose) const {
    for (const ArenaLine& line : lines)
      if (line.purpose == purpose) return static_cast<int64_t>(line.bytes);
    return 0;
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const ArenaLine& line : lines) sum += static_cast<int64_t>(line.bytes);
    return sum;
  }
};

Settings settings_of(int ranks, const Lines& lines) {
  const std::string deck = fmt::format(
      "[run]\nsteps = 3\n[model]\nfamily = llama\nlayers = {}\nhidden = {}\nheads = {}\n"
      "kv_heads = {}\nffn = {}\nvocab = 512\ntied = false\nbias = false\n"
      "[batch]\nsequence = 64\nglobal = 16\nmicro = 2\n",
      kLayers, kHidden, kHeads, kKv, kFfn);
  Lines words;
  for (const std::string& line : lines) words.push_back("--" + line);
  return parse_deck(deck, "memory.ini", words, ranks).settings;
}

Planned planned(int ranks, const Lines& lines, int stage = 0) {
  const Settings settings = settings_of(ranks, lines);
  const RankPlan plan = rank_plan(settings, grid_shape(settings, ranks), {.pp = stage});
  return {plan, planned_memory(plan)};
}

// Bytes that one layer keeps for one token in f32; `split` divides what is split over tp by rows of
// weights, `rows` what sequence parallelism splits too. The formulas of Korthikanti et al. (2022)
// without dropout masks and T x T scores: 12 h + 4 k + 6 f + 4 a in 16 bits for a gated layer with
// everything kept, 8 h + 4 k + 4 f + 4 a with norms and activation recomputed, 2 h at full
// recomputation, where k = width of keys, f = ffn, a = heads.
double layer_bytes(Recompute recompute, bool gated, double split, double rows) {
  const double h = kHidden, k = gated ? kHidden * kKv / kHeads : kHidden, f = kFfn;
  const double residual = 4 * h / rows, sums = 4 * kHeads / split;
  const double kept = 4 * (h + 2 * k + h + (gated ? 2 : 1) * f) / split + 4 * h / rows + sums;
  if (recompute == Recompute::full) return residual;
  if (recompute == Recompute::selective) return residual + kept;
  return residual + kept + 4 * 2 * h / rows + 4 * f / split;
}

int64_t whole(double bytes) {
  return static_cast<int64_t>(bytes + 0.5);
}

TEST(PlannedMemory, ActivationsFollowPolicyAndSplit) {
  EXPECT_EQ(layer_bytes(Recompute::none, true, 1, 1),
            2 * (12 * kHidden + 4 * kHidden / 2 + 6 * kFfn) + 4 * kHeads);
  const std::vector<std::pair<std::string, Recompute>> policies = {
      {"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}};
  for (const auto& [name, policy] : policies) {
    for (const auto& [family, gated] : {std::pair{"llama", true}, {"gpt2", false}}) {
      const Lines model = {fmt::format("model.family={}", family), "model.recompute=" + name,
                           fmt::format("model.kv_heads={}", gated ? kKv : kHeads)};
      auto expect = [&](int ranks, Lines lines, double split, double rows) {
        lines.insert(lines.end(), model.begin(), model.end());
        const int64_t bytes = planned(ranks, lines).of("activations");
        const double layer = layer_bytes(policy, gated, split, rows);
        EXPECT_EQ(bytes, whole(layer * kTokens * kLayers)) << family << " " << name;
        fmt::print("{:5} {:9} tp {:.0f}{:18} {:6.1f} bytes a token and layer\n", family, name,
                   split, rows > 1 ? " sequence parallel" : "", layer);
        lines.push_back("model.dropout=0.1");
        EXPECT_EQ(planned(ranks, lines).of("activations"), bytes) << "masks are drawn again";
      };
      expect(1, {}, 1, 1);
      expect(2, {"grid.tp=2"}, 2, 1);
      expect(2, {"grid.tp=2", "grid.sequence_parallel=true"}, 2, 2);
    }
  }
  const double mixed = 3 * layer_bytes(Recompute::full, true, 1, 1) +
                       (kLayers - 3) * layer_bytes(Recompute::none, true, 1, 1);
  EXPECT_EQ(planned(1, {"model.recompute=full", "model.recompute_layers=3"}).of("activations"),
            whole(mixed * kTokens));
}

// Shards travel in memory that is there anyway.
TEST(PlannedMemory, OverlapOverTpTakesNone) {
  const Lines off = {"grid.tp=2", "grid.sequence_parallel=true", "grid.tp_overlap=off"};
  const Lines on = {"grid.tp=2", "grid.sequence_parallel=true", "grid.tp_overlap=on"};
  EXPECT_TRUE(planned(2, on).plan.chunk.tp_overlap);
  EXPECT_FALSE(planned(2, off).plan.chunk.tp_overlap);
  EXPECT_FALSE(planned(2, {"grid.tp=2", "grid.sequence_parallel=true"}).plan.chunk.tp_overlap)
      << "auto is off on CPUs";
  EXPECT_FALSE(planned(2, {"grid.tp=2", "grid.tp_overlap=on"}).plan.chunk.tp_overlap);
  EXPECT_EQ(planned(2, on).total(), planned(2, off).total());
}

// 1F1B: stage s of p holds p - s micro-batches, the first one p x L / p = L layers; fewer where
// there are fewer micro-batches. Interleaving holds 1 + (p - 1) / (p v) times L layers.
TEST(PlannedMemory, MicroBatchesInFlight) {
  const double layer = layer_bytes(Recompute::none, true, 1, 1) * kTokens;
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(planned(4, {"grid.pp=4"}, stage).of("activations"),
              whole(layer * (4 - stage) * kLayers / 4))
        << stage;
  EXPECT_EQ(planned(4, {"grid.pp=4", "batch.global=4"}).of("activations"),
            whole(layer * 2 * kLayers / 4));
  const double factor = 1 + 1.0 / (2 * 2);
  EXPECT_EQ(planned(2, {"grid.pp=2", "grid.virtual_stages=2"}).of("activations"),
            whole(layer * factor * kLayers));
}

TEST(PlannedMemory, OptimizerIsTwelveBytesAParameterAndReplica) {
  for (const int dp : {1, 2, 4, 8}) {
    for (const int zero : {0, 1}) {
      const Planned p = planned(
          dp, {fmt::format("optimizer.zero={}", zero), "batch.micro=1", "optimizer.bucket=20000"});
      const int64_t bytes = p.of("master weights") + p.of("adam m") + p.of("adam v");
      const double share = 12.0 * static_cast<double>(p.plan.model.parameters()) / (zero ? dp : 1);
      fmt::print("dp {} zero {}: {} bytes, 12 P / dp = {:.0f}\n", dp, zero, bytes, share);
      EXPECT_GE(static_cast<double>(bytes), share);
      EXPECT_LE(static_cast<double>(bytes), 1.01 * share + 3 * 256);
      EXPECT_GE(p.of("weights"), 4 * p.plan.model.parameters());
      EXPECT_GE(p.of("gradients"), 4 * p.plan.model.parameters());
    }
  }
}

// Every rank of a stage takes what the plan says for it; a plan that names one rank of each stage
// speaks for all.
TEST(PlannedMemory, RanksOfAStageAreAlike) {
  for (const Lines& lines :
       {Lines{"grid.tp=4", "grid.pp=2", "model.vocab=509"},
        Lines{"grid.tp=2", "grid.pp=4", "model.tied=true", "optimizer.bucket=9000"},
        Lines{"grid.pp=2", "optimizer.zero=0", "grid.virtual_stages=2"}}) {
    const Settings settings = settings_of(16, lines);
    const GridShape grid = grid_shape(settings, 16);
    for (int rank = 0; rank < 16; ++rank) {
      const GridCoord here = coord_of(rank, grid);
      size_t first = 0, mine = 0;
      for (const ArenaLine& l : planned_memory(rank_plan(settings, grid, {.pp = here.pp})))
        first += l.bytes;
      for (const ArenaLine& l : planned_memory(rank_plan(settings, grid, here))) mine += l.bytes;
      EXPECT_LE(mine, first) << lines.front() << " rank " << rank;
    }
  }
}

TEST(PlannedMemory, ChangesWithEveryOptionThatTakesMemory) {
  const Lines base = {"grid.pp=2", "grid.tp=2"};
  auto total = [&](const Lines& more) {
    Lines lines = base;
    lines.insert(lines.end(), more.begin(), more.end());
    return planned(8, lines).total() + planned(8, lines, 1).total();
  };
  const int64_t usual = total({});
  for (const std::string more :
       {"model.vocab=1024", "batch.micro=4", "batch.sequence=128", "model.layers=10",
        "model.ffn=256", "model.kv_heads=4", "batch.global=64"})
    EXPECT_GT(total({more}), usual) << more;
  for (const std::string less :
       {"model.recompute=selective", "model.recompute=full", "grid.sequence_parallel=true",
        "precision.compute=bf16", "batch.global=4"})
    EXPECT_LT(total({less}), usual) << less;
  EXPECT_GT(total({"optimizer.zero=0"}), usual);
  EXPECT_NE(total({"grid.virtual_stages=2"}), usual);
  EXPECT_NE(total({"model.recompute=full", "model.recompute_layers=1"}),
            total({"model.recompute=full"}));
  // One stage holds one table instead of two.
  EXPECT_LT(planned(2, {"model.tied=true"}).total(), planned(2, {}).total());
  // Without a pipeline more micro-batches need only the memory of their tokens.
  EXPECT_EQ(planned(1, {"batch.global=32"}).total() - planned(1, {}).total(),
            planned(1, {"batch.global=32"}).of("batch") - planned(1, {}).of("batch"));
}

}  // namespace
}  // namespace trireme::test
