// Private to convert: rectangles from one stored matrix to another, with or without a transposition
// and a change of type, in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "trireme/io/float_type.hpp"

namespace trireme::convert {

// Bytes of a block that is made at once, and of what is read for it at once.
constexpr int64_t kBlockBytes = int64_t{64} << 20;
constexpr int64_t kReadBytes = int64_t{8} << 20;

// A stored matrix, row-major; a vector has one column.
struct Source {
  int64_t rows = 0, columns = 0;
  FloatType type = FloatType::f32;
  std::function<void(int64_t first, std::span<std::byte> to)> read;  // elements from `first` on
};

// Where a rectangle goes: rows `stride` elements apart in memory.
struct Target {
  std::byte* data = nullptr;
  int64_t stride = 0;
  FloatType type = FloatType::f32;
  std::byte* at(int64_t row, int64_t column) const {
    return data + static_cast<size_t>(row * stride + column) * size_of(type);
  }
};

// target[i, j] = source[first + i, j] for i < count. Both return how many finite values became
// infinite.
int64_t copy_rows(const Source& source, int64_t first, int64_t count, const Target& target);
// target[i, j] = source[j, first + i] for i < count.
int64_t copy_columns(const Source& source, int64_t first, int64_t count, const Target& target);

// Rows of `width` elements that fit in a block; at least one.
int64_t rows_of_block(int64_t width, FloatType type);

}  // namespace trireme::convert
