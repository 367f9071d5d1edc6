// How often to save, and the memory that a save beside training needs.
#include "trireme/train/saver.hpp"

#include <gtest/gtest.h>

#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/train/rank_plan.hpp"

namespace trireme::test {
namespace {

// 10 s blocked and a failure every 49 h: 31 minutes; 40 s and a week: 1.9 hours.
TEST(BestSaveInterval, IsYoungs) {
  EXPECT_NEAR(best_save_interval(10, 49 * 3600, 0) / 60, 31.3, 0.1);
  EXPECT_NEAR(best_save_interval(40, 7 * 24 * 3600, 0) / 3600, 1.93, 0.01);
  EXPECT_EQ(best_save_interval(0, 49 * 3600, 20), 20);
}

Settings settings_of(int ranks, const std::vector<std::string>& words) {
  const std::string deck =
      "[run]\nsteps = 3\n[model]\nfamily = gpt2\nlayers = 4\nhidden = 96\nheads = 4\nvocab = 61\n"
      "[batch]\nsequence = 16\nglobal = 8\nmicro = 1\n[checkpoint]\nevery = 1\n";
  return parse_deck(deck, "saver.ini", words, ranks).settings;
}

// 16 bytes a parameter in f32 and 14 in bf16, once over all ranks, whatever the layout.
TEST(SnapshotPlan, IsTheStateOnceOverAllRanks) {
  for (const auto& [words, bytes] : std::vector<std::pair<std::vector<std::string>, int64_t>>{
           {{"--grid.dp=4"}, 16},
           {{"--grid.dp=4", "--optimizer.zero=0"}, 16},
           {{"--grid.tp=2", "--grid.pp=2", "--precision.compute=bf16"}, 14},
           {{"--grid.pp=2", "--grid.dp=2", "--grid.virtual_stages=2"}, 16}}) {
    const Settings settings = settings_of(4, words);
    const GridShape grid = grid_shape(settings, 4);
    int64_t needed = 0, taken = 0, limited = 0;
    CheckpointSettings small = settings.checkpoint, at_once = settings.checkpoint;
    small.memory = 1;
    at_once.asynchronous = false;
    for (int rank = 0; rank < 4; ++rank) {
      const RankPlan plan = rank_plan(settings, grid, coord_of(rank, grid));
      needed += snapshot_plan(settings.checkpoint, plan).needed;
      taken += snapshot_plan(settings.checkpoint, plan).bytes;
      limited = std::max(limited, snapshot_plan(small, plan).bytes);
      EXPECT_EQ(snapshot_plan(at_once, plan).bytes, 0);
    }
    EXPECT_EQ(needed, bytes * model_shape(settings).parameters()) << words.back();
    EXPECT_EQ(taken, needed);
    EXPECT_EQ(limited, 1 << 20) << words.back();
  }
}

}  // namespace
}  // namespace trireme::test
