// Runs by fixing the outer dimensions; coverage by volume and pairwise disjointness.
#include "io/slice_geometry.hpp"

#include <algorithm>
#include <array>

namespace trireme::io {
namespace {

using Index = std::array<int64_t, 4>;

int64_t flat_index(const Shape& whole, const Index& at) {
  int64_t flat = 0;
  for (int d = 0; d < whole.dims; ++d) flat = flat * whole[d] + at[static_cast<size_t>(d)];
  return flat;
}

bool inside(const Shape& whole, const Shape& origin, const Shape& extent) {
  if (whole.dims != origin.dims || whole.dims != extent.dims) return false;
  for (int d = 0; d < whole.dims; ++d)
    if (origin[d] < 0 || extent[d] < 0 || origin[d] > whole[d] - extent[d]) return false;
  return true;
}

bool overlaps(const Piece& a, const Piece& b) {
  for (int d = 0; d < a.origin.dims; ++d) {
    if (a.origin[d] >= b.origin[d] + b.extent[d]) return false;
    if (b.origin[d] >= a.origin[d] + a.extent[d]) return false;
  }
  return true;
}

bool holds(const Piece& piece, const Index& at) {
  for (int d = 0; d < piece.origin.dims; ++d) {
    const int64_t x = at[static_cast<size_t>(d)];
    if (x < piece.origin[d] || x >= piece.origin[d] + piece.extent[d]) return false;
  }
  return true;
}

std::string text_of(const Index& at, int dims) {
  std::string text = "[";
  for (int d = 0; d < dims; ++d)
    text += fmt::format("{}{}", d > 0 ? ", " : "", at[static_cast<size_t>(d)]);
  return text + "]";
}

// First element that no piece holds, found by jumping from the end of one piece's row to the next.
std::string first_hole(const Shape& whole, const std::vector<Piece>& pieces) {
  const int last = whole.dims - 1;
  Index at{};
  while (at[0] < whole[0]) {
    const auto owner = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const Piece& piece) { return holds(piece, at); });
    if (owner == pieces.end()) return text_of(at, whole.dims);
    at[static_cast<size_t>(last)] = owner->origin[last] + owner->extent[last];
    for (int d = last; d > 0 && at[static_cast<size_t>(d)] == whole[d]; --d) {
      at[static_cast<size_t>(d)] = 0;
      ++at[static_cast<size_t>(d - 1)];
    }
  }
  return "(none found)";
}

// First pair of pieces that share an element, as text; empty when there is none.
std::string first_overlap(const std::vector<Piece>& sorted) {
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int64_t end = sorted[i].origin[0] + sorted[i].extent[0];
    for (size_t j = i + 1; j < sorted.size() && sorted[j].origin[0] < end; ++j) {
      if (!overlaps(sorted[i], sorted[j])) continue;
      Index at{};
      for (int d = 0; d < sorted[i].origin.dims; ++d)
        at[static_cast<size_t>(d)] = std::max(sorted[i].origin[d], sorted[j].origin[d]);
      return fmt::format("element {} is given by rank {} and by rank {}",
                         text_of(at, sorted[i].origin.dims), sorted[i].rank, sorted[j].rank);
    }
  }
  return "";
}

}  // namespace

RunWalk::RunWalk(const Shape& whole, const Shape& origin, const Shape& extent,
                 const std::string& name)
    : whole_(whole), origin_(origin), extent_(extent) {
  require(inside(whole, origin, extent), ExitCode::internal,
          "piece {} at {} of {} is not inside the tensor's {}", extent.text(), origin.text(), name,
          whole.text());
  if (extent.elements() == 0) return;
  // A dimension joins the run when everything inside it is whole.
  outer_ = whole.dims - 1;
  run_elements_ = extent[outer_];
  while (outer_ > 0 && extent[outer_] == whole[outer_]) {
    --outer_;
    run_elements_ *= extent[outer_];
  }
  runs_ = extent.elements() / run_elements_;
}

Run RunWalk::run(int64_t i) const {
  Index at{};
  for (int d = 0; d < whole_.dims; ++d) at[static_cast<size_t>(d)] = origin_[d];
  int64_t rest = i;
  for (int d = outer_ - 1; d >= 0; --d) {
    at[static_cast<size_t>(d)] += rest % extent_[d];
    rest /= extent_[d];
  }
  return {flat_index(whole_, at), i * run_elements_, run_elements_};
}

std::string coverage_fault(const std::string& name, const Shape& whole, std::vector<Piece> pieces) {
  int64_t given = 0;
  for (const Piece& piece : pieces) {
    if (!inside(whole, piece.origin, piece.extent))
      return fmt::format("{} {}: rank {} gives a piece {} at {} that is not inside", name,
                         whole.text(), piece.rank, piece.extent.text(), piece.origin.text());
    given += piece.extent.elements();
  }
  std::erase_if(pieces, [](const Piece& piece) { return piece.extent.elements() == 0; });
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.origin[0] < b.origin[0]; });
  const std::string overlap = first_overlap(pieces);
  if (!overlap.empty()) return fmt::format("{} {}: {}", name, whole.text(), overlap);
  if (given != whole.elements())
    return fmt::format("{} {}: element {} is given by no rank ({} of {} are)", name, whole.text(),
                       first_hole(whole, pieces), given, whole.elements());
  return "";
}

}  // namespace trireme::io
