// Rectangles of a whole tensor: their contiguous runs, and the proof that a set of them covers the
// tensor exactly once. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/tensor.hpp"

namespace trireme::io {

// Elements that are neighbours both in the whole tensor and in the local piece.
struct Run {
  int64_t whole_index = 0;
  int64_t local_index = 0;
  int64_t count = 0;
};

// Runs of the piece `extent` at `origin`, in order; a piece without elements has none. Throws
// Error(internal) when the piece does not lie inside `whole`.
class RunWalk {
 public:
  RunWalk(const Shape& whole, const Shape& origin, const Shape& extent, const std::string& name);
  int64_t runs() const { return runs_; }
  Run run(int64_t i) const;

 private:
  Shape whole_, origin_, extent_;
  int outer_ = 0;  // dimensions that are stepped through; the rest is one run
  int64_t runs_ = 0;
  int64_t run_elements_ = 0;
};

// One rank's piece of one tensor.
struct Piece {
  int rank = 0;
  Shape origin;
  Shape extent;
};

// Empty when the pieces hold each element of `whole` exactly once; else what is wrong, in words
// that name the tensor, the element and the ranks.
std::string coverage_fault(const std::string& name, const Shape& whole, std::vector<Piece> pieces);

}  // namespace trireme::io
