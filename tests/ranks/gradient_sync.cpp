// RANKS 1 2 4
// Gradient sync: sums over the right ranks exactly once, in buckets, in one order, during backward.
#include "trireme/parallel/gradient_sync.hpp"

#include <gtest/gtest.h>

#include "support/optimizer_harness.hpp"
#include "trireme/base/error.hpp"

namespace trireme::test {
namespace {

// An integer that tells rank, name and index apart; sums over four ranks are exact.
float rank_gradient(int rank, uint64_t name, int64_t index) {
  const auto mixed = mix64(name + static_cast<uint64_t>(index * 8 + rank));
  return static_cast<float>(mixed % 2001) - 1000.0f;
}

// The ranks of the world that share the sum of an entry's gradient.
std::vector<int> sharing_ranks(const OptimizerHarness& h, const ParameterSpec& spec) {
  const GridShape& shape = h.grid.shape();
  const GridCoord here = h.grid.here();
  const std::vector<int>& copies = h.grid.kv_copies().world_ranks();
  std::vector<int> ranks;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const GridCoord there = coord_of(rank, shape);
    const bool same_tp = there.tp == here.tp, same_pp = there.pp == here.pp;
    const int beside_me = rank_of({there.tp, here.cp, here.dp, here.pp}, shape);
    bool shares = false;
    switch (spec.extra_sum) {
      case ExtraSum::none:
        shares = same_tp && same_pp;
        break;
      case ExtraSum::tp:
        shares = same_pp;
        break;
      case ExtraSum::kv_copies:
        shares = same_pp && std::find(copies.begin(), copies.end(), beside_me) != copies.end();
        break;
      case ExtraSum::tied:
        shares = same_tp && (there.pp == 0 || there.pp == shape.pp - 1);
        break;
    }
    if (shares) ranks.push_back(rank);
  }
  return ranks;
}

void fill(OptimizerHarness& h) {
  h.store.zero_gradients(device().compute());
  for (size_t e = 0; e < h.table.entries().size(); ++e) {
    const ParameterEntry& entry = h.table.entries()[e];
    const uint64_t name = name_hash(entry.spec.name);
    const auto view = h.store.gradient(static_cast<int>(e)).host<float>();
    for (int64_t i = 0; i < entry.real_elements(); ++i)
      view[static_cast<size_t>(i)] = rank_gradient(world().rank(), name, global_index(entry, i));
  }
}

void expect_sums(const OptimizerHarness& h, const std::string& what) {
  int64_t checked = 0, wrong = 0;
  for (const OwnedPiece& piece : h.shards.pieces()) {
    const ParameterEntry& entry = h.table.entries()[static_cast<size_t>(piece.entry)];
    const uint64_t name = name_hash(entry.spec.name);
    const std::vector<int> ranks = sharing_ranks(h, entry.spec);
    const auto view = h.store.gradient(piece.entry).host<float>();
    for (int64_t i = piece.first; i < piece.first + piece.count; ++i, ++checked) {
      float sum = 0;
      for (const int rank : ranks) sum += rank_gradient(rank, name, global_index(entry, i));
      wrong += view[static_cast<size_t>(i)] != sum;
    }
  }
  EXPECT_EQ(wrong, 0) << what << ": of " << checked << " owned elements";
}

TEST(GradientSync, SumsOverTheRightRanksOnce) {
  for (const bool llama : {false, true})
    for (const Layout& layout : layouts_of(world().size())) {
      OptimizerHarness h(five_layers(llama), layout);
      for (int step = 0; step < 2; ++step) {
        fill(h);
        h.sync.begin_step();
        h.report_layers();
        h.sync.finish();
        h.sync.finish();
        expect_sums(h, fmt::format("{}, llama {}, step {}", layout.text(), llama, step));
      }
    }
}

// Several buckets are on their way before finish: overlap with backward is possible at all.
TEST(GradientSync, BucketsStartAsSoonAsTheirLayersAreDone) {
  const Layout layout{{1, 1, world().size(), 1}, 1, false};
  OptimizerHarness h(five_layers(true), layout);
  const std::vector<BucketShard>& shards = h.shards.shards();
  ASSERT_GE(shards.size(), 3u);
  fill(h);
  h.sync.begin_step();
  std::vector<int64_t> done;
  for (const int64_t layer : h.layers_backward()) {
    h.sync.gradient_ready(layer);
    done.push_back(layer);
    size_t complete = 0;
    for (const BucketShard& shard : shards)
      complete += std::all_of(shard.layers.begin(), shard.layers.end(), [&](int64_t l) {
        return std::find(done.begin(), done.end(), l) != done.end();
      });
    EXPECT_EQ(h.sync.started().size(), complete) << "after layer " << layer;
  }
  EXPECT_EQ(h.sync.started().size(), shards.size());
  h.sync.finish();
}

// The order is the table's even when layers are reported in another one.
TEST(GradientSync, OrderDoesNotDependOnWhoIsReadyFirst) {
  const Layout layout{{1, 1, world().size(), 1}, 1, false};
  OptimizerHarness h(five_layers(false), layout);
  fill(h);
  h.sync.begin_step();
  std::vector<int64_t> layers = h.layers_backward();
  if (world().rank() % 2 == 1) std::reverse(layers.begin(), layers.end());
  for (const int64_t layer : layers) h.sync.gradient_ready(layer);
  h.sync.finish();
  std::vector<size_t> order(h.shards.shards().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  EXPECT_EQ(h.sync.started(), order);
  expect_sums(h, "reversed on odd ranks");
}

TEST(GradientSync, ReportingALayerTwiceIsAnError) {
  const Layout layout{{1, 1, world().size(), 1}, 1, false};
  OptimizerHarness h(five_layers(true), layout);
  h.sync.begin_step();
  h.report_layers();
  EXPECT_THROW(h.sync.gradient_ready(0), Error);
  h.sync.finish();
  EXPECT_THROW(h.sync.gradient_ready(0), Error);
}

// finish alone is enough: nothing is left out when no layer was reported.
TEST(GradientSync, FinishStartsWhatIsLeft) {
  const Layout layout{{1, 1, world().size(), 1}, 0, false};
  OptimizerHarness h(five_layers(true), layout);
  fill(h);
  h.sync.exposed_reduce().switch_on(true);
  h.sync.begin_step();
  h.sync.finish();
  expect_sums(h, "finish only");
  EXPECT_GT(h.sync.exposed_reduce().seconds(), 0.0);
  EXPECT_EQ(h.sync.exposed_gather().seconds(), 0.0);
}

TEST(GradientSync, GatheredValuesReachEveryRankBeforeUse) {
  const Layout layout{{1, 1, world().size(), 1}, 1, false};
  OptimizerHarness h(five_layers(false), layout);
  for (size_t g = 0; g < h.table.groups().size(); ++g)
    for (float& x : h.store.group_values(static_cast<int>(g)).host<float>()) x = -1;
  for (const OwnedPiece& piece : h.shards.pieces()) {
    const ParameterEntry& entry = h.table.entries()[static_cast<size_t>(piece.entry)];
    const auto view = h.store.value(piece.entry).host<float>();
    for (int64_t i = piece.first; i < piece.first + piece.count; ++i)
      view[static_cast<size_t>(i)] = test_weight(entry.spec, i);
  }
  for (size_t s = h.shards.shards().size(); s-- > 0;) h.sync.gather_values(s);
  for (int64_t layer = -1; layer <= 5; ++layer) {
    h.sync.before_use(layer);
    for (size_t e = 0; e < h.table.entries().size(); ++e) {
      const ParameterEntry& entry = h.table.entries()[e];
      if (entry.spec.layer != layer) continue;
      const auto view = h.store.value(static_cast<int>(e)).host<float>();
      for (int64_t i = 0; i < entry.real_elements(); ++i)
        ASSERT_EQ(view[static_cast<size_t>(i)], test_weight(entry.spec, i))
            << entry.spec.name << " " << i;
    }
  }
}

}  // namespace
}  // namespace trireme::test
