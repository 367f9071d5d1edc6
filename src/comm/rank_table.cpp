// The table of ranks, and tp groups that leave their host: see the header.
#include "trireme/comm/rank_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trireme {
namespace {

size_t widest(std::span<const RankPlace> places, std::string RankPlace::*member, size_t least) {
  for (const RankPlace& place : places) least = std::max(least, (place.*member).size());
  return least;
}

std::string range(int low, int high) {
  return low == high ? fmt::format("{}", low) : fmt::format("{}-{}", low, high);
}

// Smallest and largest coordinate of the ranks [first, last) on one axis.
std::string axis_range(const GridShape& shape, int first, int last, int GridCoord::*axis) {
  int low = coord_of(first, shape).*axis, high = low;
  for (int rank = first; rank < last; ++rank) {
    low = std::min(low, coord_of(rank, shape).*axis);
    high = std::max(high, coord_of(rank, shape).*axis);
  }
  return range(low, high);
}

}  // namespace

std::vector<std::string> rank_table(const GridShape& shape, std::span<const RankPlace> places,
                                    size_t most) {
  const bool each = places.size() <= most;
  const size_t host = widest(places, &RankPlace::host, 4);
  const size_t device = each ? widest(places, &RankPlace::device, 6) : 0;
  std::vector<std::string> lines;
  const auto add = [&](const std::string& ranks, const std::string& name, const std::string& what,
                       const std::array<std::string, 4>& axes) {
    lines.push_back(fmt::format("{:>11}  {:{}}  {:{}}{}{:>7} {:>7} {:>7} {:>7}", ranks, name, host,
                                what, device, each ? "  " : "", axes[0], axes[1], axes[2],
                                axes[3]));
  };
  add("rank", "host", each ? "device" : "", {"tp", "cp", "dp", "pp"});
  for (size_t first = 0; first < places.size();) {
    size_t last = first + 1;
    while (!each && last < places.size() && places[last].node == places[first].node) ++last;
    const int a = static_cast<int>(first), b = static_cast<int>(last);
    add(range(a, b - 1), places[first].host, each ? places[first].device : "",
        {axis_range(shape, a, b, &GridCoord::tp), axis_range(shape, a, b, &GridCoord::cp),
         axis_range(shape, a, b, &GridCoord::dp), axis_range(shape, a, b, &GridCoord::pp)});
    first = last;
  }
  return lines;
}

std::string tp_split_fault(const GridShape& shape, std::span<const RankPlace> places) {
  for (size_t rank = 0; rank < places.size(); ++rank) {
    GridCoord head = coord_of(static_cast<int>(rank), shape);
    head.tp = 0;
    const auto first = static_cast<size_t>(rank_of(head, shape));
    if (places[rank].node == places[first].node) continue;
    return fmt::format(
        "a tensor-parallel group is on two hosts: rank {} on {}, rank {} on {}. tp talks in every "
        "layer and belongs inside a host: let tp ({}) divide the ranks of each host and place "
        "ranks block by block (mpirun --map-by ppr:N:node, srun --distribution=block), lower "
        "grid.tp, or allow it: --grid.tp_across_nodes=true",
        first, places[first].host, rank, places[rank].host, shape.tp);
  }
  return "";
}

}  // namespace trireme
