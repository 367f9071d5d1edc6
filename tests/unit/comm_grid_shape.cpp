// Coordinates of ranks, for every shape up to 4 x 3 x 4 x 5, without MPI.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/comm/grid_shape.hpp"

namespace trireme {

namespace {

template <class Function>
void for_each_shape(Function&& visit) {
  for (int tp = 1; tp <= 4; ++tp)
    for (int cp = 1; cp <= 3; ++cp)
      for (int dp = 1; dp <= 4; ++dp)
        for (int pp = 1; pp <= 5; ++pp) visit(GridShape{tp, cp, dp, pp});
}

}  // namespace

TEST(GridShape, RankAndCoordinatesAreInverse) {
  for_each_shape([](const GridShape& shape) {
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      const GridCoord at = coord_of(rank, shape);
      ASSERT_EQ(rank_of(at, shape), rank) << shape.text();
      ASSERT_TRUE(at.tp < shape.tp && at.cp < shape.cp && at.dp < shape.dp && at.pp < shape.pp);
    }
  });
}

TEST(GridShape, AxesVaryInTheOrderTpCpDpPp) {
  for_each_shape([](const GridShape& s) {
    int rank = 0;
    for (int pp = 0; pp < s.pp; ++pp)
      for (int dp = 0; dp < s.dp; ++dp)
        for (int cp = 0; cp < s.cp; ++cp)
          for (int tp = 0; tp < s.tp; ++tp)
            ASSERT_EQ(coord_of(rank++, s), (GridCoord{tp, cp, dp, pp})) << s.text();
  });
}

TEST(GridShape, OutOfRangeIsAnError) {
  const GridShape shape{2, 1, 3, 2};
  EXPECT_EQ(shape.ranks(), 12);
  EXPECT_THROW(coord_of(12, shape), Error);
  EXPECT_THROW(coord_of(-1, shape), Error);
  EXPECT_THROW(rank_of({.tp = 2}, shape), Error);
  EXPECT_THROW(rank_of({.cp = -1}, shape), Error);
  EXPECT_THROW(rank_of({.dp = 3}, shape), Error);
  EXPECT_THROW(rank_of({.pp = 2}, shape), Error);
}

TEST(GridShape, NearestShapesFitAndComeInOrderOfChange) {
  const auto near = nearest_shapes({4, 1, 1, 2}, 4, 3);
  ASSERT_EQ(near.size(), 3u);
  for (const GridShape& s : near) EXPECT_EQ(s.ranks(), 4);
  const std::set<std::string> first_two{near[0].text(), near[1].text()};
  EXPECT_EQ(first_two,
            (std::set<std::string>{"tp 4 x cp 1 x dp 1 x pp 1", "tp 2 x cp 1 x dp 1 x pp 2"}));
  EXPECT_EQ(nearest_shapes({2, 1, 3, 1}, 6, 1).front(), (GridShape{2, 1, 3, 1}));
  // 6 = 2 x 3 over four axes: 4 places for each prime.
  EXPECT_EQ(nearest_shapes({}, 6, 1000).size(), 16u);
}

TEST(GridShape, CheckRanksNamesTheEquation) {
  EXPECT_NO_THROW(check_ranks({2, 1, 1, 2}, 4));
  try {
    check_ranks({2, 1, 1, 2}, 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_config);
    const std::string text = e.what();
    EXPECT_NE(text.find("tp 2 x cp 1 x dp 1 x pp 2 = 4 ranks, but 3 were started"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("tp 3 x cp 1 x dp 1 x pp 1"), std::string::npos) << text;
  }
}

}  // namespace trireme
