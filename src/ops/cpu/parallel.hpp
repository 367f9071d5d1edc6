// Loops over rows and blocks shared by the CPU operations.
//
// Blocks have a fixed size, so that what a block computes, and with it every sum, is the same for
// any number of threads. Bodies must not throw.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/base/checked.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Elements below which starting threads costs more than it brings.
inline constexpr int64_t kParallelGrain = 8192;

// body(first, last) over blocks of `block` elements of [0, count).
template <class Body>
void for_blocks(int64_t count, int64_t block, const Body& body) {
  const int64_t blocks = ceil_div(count, block);
#pragma omp parallel for schedule(static) if (count > kParallelGrain && blocks > 1)
  for (int64_t b = 0; b < blocks; ++b) body(b * block, std::min(count, (b + 1) * block));
}

// body(row) for rows of `width` elements.
template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
#pragma omp parallel for schedule(static) if (rows > 1 && rows * width > kParallelGrain)
  for (int64_t r = 0; r < rows; ++r) body(r);
}

// body(first, count) over column tiles of one row.
inline constexpr int64_t kTile = 512;
template <class Body>
void for_tiles(int64_t width, const Body& body) {
  for (int64_t c = 0; c < width; c += kTile) body(c, std::min(kTile, width - c));
}

}  // namespace trireme::inline TRIREME_BACKEND
