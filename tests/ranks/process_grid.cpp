// RANKS 1 2 3 4 6
// The groups of the process grid, for every shape that fits the rank count: members, order,
// streams.
#include "trireme/comm/process_grid.hpp"

#include <gtest/gtest.h>

#include <set>

#include "support/rank_test.hpp"

namespace trireme::test {

namespace {

int place(const GridShape& shape, GridCoord at) {
  return rank_of(at, shape);
}

// World ranks that differ from `here` in one axis only, in the order of that axis.
std::vector<int> along_tp(const GridShape& s, GridCoord at) {
  std::vector<int> ranks;
  for (at.tp = 0; at.tp < s.tp; ++at.tp) ranks.push_back(place(s, at));
  return ranks;
}
std::vector<int> along_pp(const GridShape& s, GridCoord at) {
  std::vector<int> ranks;
  for (at.pp = 0; at.pp < s.pp; ++at.pp) ranks.push_back(place(s, at));
  return ranks;
}
std::vector<int> along_dp_and_cp(const GridShape& s, GridCoord at) {
  std::vector<int> ranks;
  for (at.dp = 0; at.dp < s.dp; ++at.dp)
    for (at.cp = 0; at.cp < s.cp; ++at.cp) ranks.push_back(place(s, at));
  return ranks;
}

void expect_edge(const PipelineEdge& edge, int lower, int upper) {
  const std::vector<int> both{lower, upper};
  EXPECT_EQ(edge.activations.world_ranks(), both);
  EXPECT_EQ(edge.gradients.world_ranks(), both);
}

void expect_edges(const ProcessGrid& grid) {
  const GridShape& s = grid.shape();
  GridCoord next = grid.here(), previous = grid.here();
  next.pp = (next.pp + 1) % s.pp;
  previous.pp = (previous.pp + s.pp - 1) % s.pp;
  expect_edge(grid.to_next(), place(s, grid.here()), place(s, next));
  expect_edge(grid.to_previous(), place(s, previous), place(s, grid.here()));
  const std::set<const Stream*> streams{
      grid.to_next().activation_stream, grid.to_next().gradient_stream,
      grid.to_previous().activation_stream, grid.to_previous().gradient_stream};
  EXPECT_EQ(streams.size(), 4u);
  EXPECT_EQ(streams.count(nullptr), 0u);
}

std::vector<GridShape> all_shapes() {
  return nearest_shapes({1, 1, world().size(), 1}, world().size(), 1000);
}

std::string text_of_failure(const GridShape& shape, int64_t kv_heads) {
  try {
    const ProcessGrid grid(world(), shape, kv_heads, device());
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_config);
    return e.what();
  }
  return "no failure";
}

}  // namespace

TEST(ProcessGrid, GroupsHoldTheRanksOfTheirAxisInOrder) {
  for (const GridShape& shape : all_shapes()) {
    SCOPED_TRACE(shape.text());
    const ProcessGrid grid(world(), shape, shape.tp, device());
    const GridCoord here = grid.here();
    EXPECT_EQ(place(shape, here), world().rank());
    EXPECT_EQ(grid.world().size(), world().size());
    EXPECT_EQ(grid.world().rank(), world().rank());
    EXPECT_EQ(grid.tp().world_ranks(), along_tp(shape, here));
    EXPECT_EQ(grid.tp().rank(), here.tp);
    EXPECT_EQ(grid.pp().world_ranks(), along_pp(shape, here));
    EXPECT_EQ(grid.pp().rank(), here.pp);
    EXPECT_EQ(grid.dp().world_ranks(), along_dp_and_cp(shape, here));
    EXPECT_EQ(grid.dp().rank(), here.dp * shape.cp + here.cp);
    EXPECT_EQ(grid.kv_copies().size(), 1);
    EXPECT_EQ(grid.first_stage(), here.pp == 0);
    EXPECT_EQ(grid.last_stage(), here.pp == shape.pp - 1);
    if (shape.pp > 1) expect_edges(grid);
  }
}

TEST(ProcessGrid, TiedTableIsSharedByFirstAndLastStage) {
  for (const GridShape& shape : all_shapes()) {
    SCOPED_TRACE(shape.text());
    const ProcessGrid grid(world(), shape, shape.tp, device());
    GridCoord first = grid.here(), last = grid.here();
    first.pp = 0;
    last.pp = shape.pp - 1;
    std::vector<int> expected{world().rank()};
    if (shape.pp > 1 && (grid.first_stage() || grid.last_stage()))
      expected = {place(shape, first), place(shape, last)};
    EXPECT_EQ(grid.tied_embedding().world_ranks(), expected);
  }
}

TEST(ProcessGrid, CopiesOfAKvHeadFormAGroup) {
  for (const GridShape& shape : all_shapes()) {
    for (int kv_heads = 1; kv_heads <= 2 * shape.tp; ++kv_heads) {
      if (kv_heads < shape.tp && shape.tp % kv_heads != 0) continue;
      SCOPED_TRACE(fmt::format("{}, {} KV heads", shape.text(), kv_heads));
      const ProcessGrid grid(world(), shape, kv_heads, device());
      std::vector<int> expected;
      for (GridCoord at = grid.here(), other = (at.tp = 0, at); other.tp < shape.tp; ++other.tp) {
        const auto head = [&](int tp) { return tp * kv_heads / shape.tp; };
        const bool same = kv_heads < shape.tp ? head(other.tp) == head(grid.here().tp)
                                              : other.tp == grid.here().tp;
        if (same) expected.push_back(place(shape, other));
      }
      EXPECT_EQ(grid.kv_copies().world_ranks(), expected);
    }
  }
}

TEST(ProcessGrid, EveryGroupIsConnected) {
  for (const GridShape& shape : all_shapes()) {
    SCOPED_TRACE(shape.text());
    const ProcessGrid grid(world(), shape, 1, device());
    for (const Communicator* group : {&grid.world(), &grid.tp(), &grid.dp(), &grid.pp(),
                                      &grid.tied_embedding(), &grid.kv_copies()}) {
      std::vector<float> one(3, 1.0f);
      group->all_reduce(device().compute(),
                        {reinterpret_cast<std::byte*>(one.data()), {3}, DType::f32});
      EXPECT_EQ(one, std::vector<float>(3, static_cast<float>(group->size())));
    }
  }
}

TEST(ProcessGrid, AWrongRankCountNamesBothNumbersAndGridsThatFit) {
  const int n = world().size();
  const std::string text = text_of_failure({.tp = n, .pp = 2}, n);
  EXPECT_NE(text.find(fmt::format("tp {} x cp 1 x dp 1 x pp 2 = {} ranks, but {} were started", n,
                                  2 * n, n)),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("nearest: "), std::string::npos) << text;
  EXPECT_NE(text_of_failure({.dp = 0}, 1).find("below 1"), std::string::npos);
  EXPECT_NE(text_of_failure({.tp = 1 << 16, .dp = 1 << 16}, 1).find("4294967296 ranks"),
            std::string::npos);
  if (n < 3) return;
  // 2 of 3, 3 of 4, 5 of 6 KV heads: ranks would hold parts of heads.
  EXPECT_NE(text_of_failure({.tp = n}, n - 1).find("kv_heads"), std::string::npos);
}

}  // namespace trireme::test
