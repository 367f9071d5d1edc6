// The process grid as arithmetic: who is who among the ranks. Pure, no MPI.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme {

// Sizes of the axes. tp varies fastest, so that it stays inside a node; then cp, dp; pp is slowest.
struct GridShape {
  int tp = 1, cp = 1, dp = 1, pp = 1;
  int ranks() const { return tp * cp * dp * pp; }
  std::string text() const;  // "tp 2 x cp 1 x dp 1 x pp 2"
  bool operator==(const GridShape&) const = default;
};

struct GridCoord {
  int tp = 0, cp = 0, dp = 0, pp = 0;
  bool operator==(const GridCoord&) const = default;
};

GridCoord coord_of(int rank, const GridShape& shape);
int rank_of(const GridCoord& coord, const GridShape& shape);

// At most `most` shapes of exactly `ranks` ranks, those first whose axes differ by the smallest
// factors.
std::vector<GridShape> nearest_shapes(const GridShape& wanted, int ranks, size_t most);
// Throws Error(bad_config) when an axis is below 1 or the grid is not `ranks` ranks; names both
// numbers and grids that would fit.
void check_ranks(const GridShape& shape, int ranks);

}  // namespace trireme
