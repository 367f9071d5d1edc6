// Runs of a piece against a walk over its elements; coverage against counting.
#include "io/slice_geometry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace trireme::io {
namespace {

// Flat indices of a piece in the whole tensor, in the order of its local elements.
std::vector<int64_t> elements_of(const Shape& whole, const Shape& origin, const Shape& extent) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < extent.elements(); ++i) {
    int64_t rest = i, index = 0, scale = 1;
    for (int d = extent.dims - 1; d >= 0; --d) {
      index += (origin[d] + rest % extent[d]) * scale;
      rest /= extent[d];
      scale *= whole[d];
    }
    indices.push_back(index);
  }
  return indices;
}

struct RandomPiece {
  Shape whole, origin, extent;
};

RandomPiece random_piece(std::mt19937& random) {
  RandomPiece piece;
  piece.whole.dims = piece.origin.dims = piece.extent.dims = 1 + static_cast<int>(random() % 4);
  for (size_t d = 0; d < static_cast<size_t>(piece.whole.dims); ++d) {
    piece.whole.extent[d] = 1 + static_cast<int64_t>(random() % 5);
    piece.origin.extent[d] =
        random() % 3 == 0 ? static_cast<int64_t>(random()) % piece.whole.extent[d] : 0;
    const int64_t most = piece.whole.extent[d] - piece.origin.extent[d];
    piece.extent.extent[d] = random() % 2 == 0 ? most : static_cast<int64_t>(random()) % (most + 1);
  }
  return piece;
}

TEST(RunWalk, VisitsTheElementsOfThePieceInOrder) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const RandomPiece piece = random_piece(random);
    const RunWalk walk(piece.whole, piece.origin, piece.extent, "t");
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < walk.runs(); ++i) {
      const io::Run run = walk.run(i);
      EXPECT_EQ(run.local_index, static_cast<int64_t>(seen.size()));
      for (int64_t k = 0; k < run.count; ++k) seen.push_back(run.whole_index + k);
    }
    ASSERT_EQ(seen, elements_of(piece.whole, piece.origin, piece.extent))
        << piece.whole.text() << piece.origin.text() << piece.extent.text();
  }
}

TEST(RunWalk, WholeRowsAreOneRun) {
  EXPECT_EQ(RunWalk({100, 7, 3}, {20, 0, 0}, {30, 7, 3}, "t").runs(), 1);
  EXPECT_EQ(RunWalk({100, 7, 3}, {20, 2, 0}, {1, 4, 3}, "t").runs(), 1);
  EXPECT_EQ(RunWalk({100, 7}, {20, 2}, {30, 4}, "t").runs(), 30);
  EXPECT_EQ(RunWalk({100, 7}, {20, 2}, {0, 4}, "t").runs(), 0);
  EXPECT_THROW(RunWalk({100, 7}, {99, 0}, {2, 7}, "t"), Error);
  EXPECT_THROW(RunWalk({100, 7}, {-1, 0}, {2, 7}, "t"), Error);
  EXPECT_THROW(RunWalk({100, 7}, {0}, {100}, "t"), Error);
}

// Cuts a box at random places into pieces.
void cut(std::mt19937& random, Piece box, int depth, std::vector<Piece>& out) {
  const auto d = static_cast<size_t>(random()) % static_cast<size_t>(box.extent.dims);
  if (depth == 0 || box.extent.extent[d] < 2) {
    box.rank = static_cast<int>(out.size());
    out.push_back(box);
    return;
  }
  const int64_t at = 1 + static_cast<int64_t>(random()) % (box.extent.extent[d] - 1);
  Piece left = box, right = box;
  left.extent.extent[d] = at;
  right.origin.extent[d] += at;
  right.extent.extent[d] -= at;
  cut(random, left, depth - 1, out);
  cut(random, right, depth - 1, out);
}

TEST(Coverage, AcceptsAnyExactCutAndNamesAnyOtherFault) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 500; ++trial) {
    const Shape whole = {3 + static_cast<int64_t>(random() % 9),
                         2 + static_cast<int64_t>(random() % 7),
                         1 + static_cast<int64_t>(random() % 4)};
    std::vector<Piece> pieces;
    cut(random, {0, {0, 0, 0}, whole}, 4, pieces);
    std::shuffle(pieces.begin(), pieces.end(), random);
    EXPECT_EQ(coverage_fault("t", whole, pieces), "");
    // Moving one piece by one makes a hole and an overlap; dropping one a hole; repeating an
    // overlap.
    std::vector<Piece> dropped(pieces.begin() + 1, pieces.end());
    EXPECT_NE(coverage_fault("t", whole, dropped).find("is given by no rank"), std::string::npos);
    std::vector<Piece> repeated = pieces;
    repeated.push_back(pieces[random() % pieces.size()]);
    EXPECT_NE(coverage_fault("t", whole, repeated).find("and by rank"), std::string::npos);
    std::vector<Piece> moved = pieces;
    Piece& piece = moved[random() % moved.size()];
    piece.origin.extent[0] += piece.origin[0] > 0 ? -1 : 1;
    EXPECT_NE(coverage_fault("t", whole, moved), "");
  }
}

TEST(Coverage, NamesTheElement) {
  EXPECT_EQ(coverage_fault("weights/a", {4, 6}, {{0, {0, 0}, {2, 6}}, {1, {2, 0}, {2, 5}}}),
            "weights/a [4, 6]: element [2, 5] is given by no rank (22 of 24 are)");
  EXPECT_EQ(coverage_fault("weights/a", {4, 6}, {{0, {0, 0}, {3, 6}}, {3, {2, 4}, {2, 2}}}),
            "weights/a [4, 6]: element [2, 4] is given by rank 0 and by rank 3");
  // As many elements as there should be, but not the right ones.
  EXPECT_NE(coverage_fault("weights/a", {4}, {{0, {0}, {2}}, {1, {1}, {2}}}), "");
}

}  // namespace
}  // namespace trireme::io
