// The process grid as arithmetic: who is who among the ranks. Pure, no MPI.
#pragma once

#include <string>

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

}  // namespace trireme
