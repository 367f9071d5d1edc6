// Who owns which parameters on the dp x cp axis: everything has its owners, and one speaker.
#include <gtest/gtest.h>

#include <map>

#include "support/model_harness.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/parallel/distributed_adamw.hpp"
#include "trireme/parallel/shard_layout.hpp"

namespace trireme::test {
namespace {

struct Layout {
  GridShape grid;
  int zero = 1;
  bool sequence_parallel = false;
};

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int zero : {0, 1})
    for (const GridShape grid :
         {GridShape{1, 1, 1, 1}, GridShape{1, 1, 3, 1}, GridShape{2, 1, 2, 1},
          GridShape{4, 2, 1, 2}, GridShape{1, 2, 3, 2}, GridShape{2, 1, 8, 2}})
      for (const bool sequence_parallel : {false, true})
        all.push_back({grid, zero, sequence_parallel});
  return all;
}

ParameterTable table_at(const ModelShape& model, const Layout& layout, const GridCoord& here) {
  return ParameterTable(model, {layout.grid, here, 1, layout.sequence_parallel, 2000});
}

ShardLayout shards_at(const ParameterTable& table, const Layout& layout, const GridCoord& here) {
  return ShardLayout(table, here.cp + layout.grid.cp * here.dp, layout.grid.cp * layout.grid.dp,
                     layout.zero);
}

TEST(ShardLayout, EveryElementHasOneSpeakerInTheWorld) {
  for (const bool llama : {false, true})
    for (const Layout& layout : layouts()) {
      const ModelShape model = odd_model(llama);
      std::map<std::string, std::vector<int>> speakers;
      for (int rank = 0; rank < layout.grid.ranks(); ++rank) {
        const GridCoord here = coord_of(rank, layout.grid);
        const ParameterTable table = table_at(model, layout, here);
        const ShardLayout shards = shards_at(table, layout, here);
        for (const OwnedPiece& piece : shards.pieces()) {
          const ParameterEntry& entry = table.entries()[static_cast<size_t>(piece.entry)];
          std::vector<int>& counts = speakers[entry.spec.name];
          counts.resize(static_cast<size_t>(entry.spec.whole.elements()));
          if (!shards.speaks_for(piece)) continue;
          const int64_t first = entry.first_row * entry.local.row_elements() + piece.first;
          for (int64_t i = first; i < first + piece.count; ++i) ++counts[static_cast<size_t>(i)];
        }
      }
      int64_t elements = 0;
      for (const auto& [name, counts] : speakers) {
        elements += static_cast<int64_t>(counts.size());
        EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }))
            << name << " at " << layout.grid.text() << ", zero " << layout.zero;
      }
      EXPECT_EQ(elements, model.parameters());
    }
}

// Without sharding everything; with it each element of each buffer on one rank, in order.
TEST(ShardLayout, OwnedRangesTileTheBuckets) {
  for (const Layout& layout : layouts()) {
    const int ranks = layout.grid.dp * layout.grid.cp;
    const ParameterTable table = table_at(odd_model(false), layout, {});
    std::vector<int64_t> next(table.groups().size(), 0);
    int64_t owned = 0;
    std::vector<ShardLayout> all;
    for (int rank = 0; rank < ranks; ++rank) all.emplace_back(table, rank, ranks, layout.zero);
    for (size_t s = 0; s < all.front().shards().size(); ++s)
      for (int rank = 0; rank < ranks; ++rank) {
        const BucketShard& shard = all[static_cast<size_t>(rank)].shards()[s];
        owned += shard.count;
        EXPECT_EQ(shard.count % ParameterTable::kShardAlignment, 0);
        if (layout.zero == 0) {
          EXPECT_EQ(shard.first, shard.bucket.first);
          EXPECT_EQ(shard.count, shard.bucket.count);
          continue;
        }
        EXPECT_EQ(shard.first, next[static_cast<size_t>(shard.group)]);
        next[static_cast<size_t>(shard.group)] += shard.count;
      }
    EXPECT_EQ(owned, table.elements() * (layout.zero == 0 ? ranks : 1));
  }
}

TEST(ShardLayout, MemoryOfTheOptimizerIsTwelveBytesAnElement) {
  for (const Layout& layout : layouts()) {
    const ParameterTable table = table_at(odd_model(true), layout, {});
    const ShardLayout shards = shards_at(table, layout, {});
    Arena dry = Arena::dry();
    const OptimizerMemory memory(shards, dry);
    const int64_t share = layout.zero == 0 ? 1 : layout.grid.dp * layout.grid.cp;
    EXPECT_EQ(shards.state_elements() * share, table.elements());
    const auto bytes = static_cast<size_t>(round_up(4 * shards.state_elements(), 256));
    ASSERT_EQ(dry.lines().size(), 4u);
    EXPECT_EQ(dry.lines()[0].purpose, "master weights");
    EXPECT_EQ(dry.lines()[0].bytes, bytes);
    EXPECT_EQ(dry.lines()[1].purpose, "adam m");
    EXPECT_EQ(dry.lines()[1].bytes, bytes);
    EXPECT_EQ(dry.lines()[2].purpose, "adam v");
    EXPECT_EQ(dry.lines()[2].bytes, bytes);
  }
}

TEST(ShardLayout, UnknownZeroStageIsRefused) {
  const ParameterTable table(odd_model(true), TableOptions{});
  EXPECT_THROW(ShardLayout(table, 0, 1, 2), Error);
  EXPECT_THROW(ShardLayout(table, 0, 1, -1), Error);
}

// A table made for another number of replicas does not fit.
TEST(ShardLayout, BucketsThatCannotBeCutAreRefused) {
  const ParameterTable table(odd_model(true), TableOptions{});
  EXPECT_THROW(ShardLayout(table, 0, 7, 1), Error);
}

}  // namespace
}  // namespace trireme::test
