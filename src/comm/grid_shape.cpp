// Ranks to coordinates and back: mixed-radix digits, tp the fastest.
#include "trireme/comm/grid_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"

namespace trireme {

namespace {

double distance(const GridShape& a, const GridShape& b) {
  const auto apart = [](int x, int y) { return std::abs(std::log2(double(x) / double(y))); };
  return apart(a.tp, b.tp) + apart(a.cp, b.cp) + apart(a.dp, b.dp) + apart(a.pp, b.pp);
}

std::vector<int> divisors(int n) {
  std::vector<int> found;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

}  // namespace

std::string GridShape::text() const {
  return fmt::format("tp {} x cp {} x dp {} x pp {}", tp, cp, dp, pp);
}

GridCoord coord_of(int rank, const GridShape& shape) {
  require(0 <= rank && rank < shape.ranks(), ExitCode::internal, "rank {} in the grid {}", rank,
          shape.text());
  GridCoord at;
  at.tp = rank % shape.tp;
  rank /= shape.tp;
  at.cp = rank % shape.cp;
  rank /= shape.cp;
  at.dp = rank % shape.dp;
  at.pp = rank / shape.dp;
  return at;
}

int rank_of(const GridCoord& at, const GridShape& shape) {
  const auto inside = [](int i, int n) { return 0 <= i && i < n; };
  require(inside(at.tp, shape.tp) && inside(at.cp, shape.cp) && inside(at.dp, shape.dp) &&
              inside(at.pp, shape.pp),
          ExitCode::internal, "coordinates tp {} cp {} dp {} pp {} in the grid {}", at.tp, at.cp,
          at.dp, at.pp, shape.text());
  return at.tp + shape.tp * (at.cp + shape.cp * (at.dp + shape.dp * at.pp));
}

std::vector<GridShape> nearest_shapes(const GridShape& wanted, int ranks, size_t most) {
  std::vector<GridShape> fits;
  for (int tp : divisors(ranks))
    for (int pp : divisors(ranks / tp))
      for (int cp : divisors(ranks / tp / pp)) fits.push_back({tp, cp, ranks / tp / pp / cp, pp});
  std::stable_sort(fits.begin(), fits.end(), [&](const GridShape& a, const GridShape& b) {
    return distance(a, wanted) < distance(b, wanted);
  });
  if (fits.size() > most) fits.resize(most);
  return fits;
}

void check_ranks(const GridShape& shape, int ranks) {
  require(shape.tp >= 1 && shape.cp >= 1 && shape.dp >= 1 && shape.pp >= 1, ExitCode::bad_config,
          "the grid {} has an axis below 1: every axis of [grid] is at least 1", shape.text());
  const double needed = double(shape.tp) * shape.cp * shape.dp * shape.pp;
  if (needed == double(ranks)) return;
  std::string fits;
  for (const GridShape& s : nearest_shapes(shape, ranks, 3))
    fits += (fits.empty() ? "" : "; ") + s.text();
  fail(ExitCode::bad_config,
       "the grid {} = {:.0f} ranks, but {} were started: start {:.0f}, or choose a grid of {} "
       "(nearest: {})",
       shape.text(), needed, ranks, needed, ranks, fits);
}

}  // namespace trireme
