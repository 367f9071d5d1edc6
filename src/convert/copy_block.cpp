#include "convert/copy_block.hpp"

#include <algorithm>
#include <vector>

namespace trireme::convert {

int64_t rows_of_block(int64_t width, FloatType type) {
  const int64_t bytes = std::max<int64_t>(1, width) * static_cast<int64_t>(size_of(type));
  return std::max<int64_t>(1, kBlockBytes / bytes);
}

int64_t copy_rows(const Source& source, int64_t first, int64_t count, const Target& target) {
  const auto width = static_cast<int64_t>(size_of(source.type));
  // A row at most: what lies beside it in the target is not ours.
  const int64_t step = std::clamp<int64_t>(kReadBytes / width, 1, source.columns);
  const bool dense = target.stride == source.columns;
  const int64_t rows = dense ? std::max<int64_t>(1, kReadBytes / (width * source.columns)) : 1;
  std::vector<std::byte> buffer;
  int64_t lost = 0;
  for (int64_t row = 0; row < count; row += rows) {
    const int64_t now = std::min(rows, count - row);
    for (int64_t column = 0; column < source.columns; column += step) {
      const int64_t elements =
          now > 1 ? now * source.columns : std::min(step, source.columns - column);
      buffer.resize(static_cast<size_t>(elements * width));
      source.read((first + row) * source.columns + column, buffer);
      lost += convert_floats(source.type, buffer, target.type, target.at(row, column), 1, elements);
      if (now > 1) break;
    }
  }
  return lost;
}

int64_t copy_columns(const Source& source, int64_t first, int64_t count, const Target& target) {
  const auto width = static_cast<int64_t>(size_of(source.type));
  const bool whole = first == 0 && count == source.columns;
  // Whole rows lie together; parts of rows are read one by one.
  const int64_t rows =
      std::clamp<int64_t>(kReadBytes / (width * std::max<int64_t>(1, count)), 1, source.rows);
  std::vector<std::byte> buffer(static_cast<size_t>(rows * count * width));
  int64_t lost = 0;
  for (int64_t row = 0; row < source.rows; row += rows) {
    const int64_t now = std::min(rows, source.rows - row);
    const std::span<std::byte> strip =
        std::span(buffer).first(static_cast<size_t>(now * count * width));
    if (whole) {
      source.read(row * source.columns, strip);
    } else {
      for (int64_t i = 0; i < now; ++i)
        source.read((row + i) * source.columns + first,
                    strip.subspan(static_cast<size_t>(i * count * width),
                                  static_cast<size_t>(count * width)));
    }
    // Columns of the strip to rows of the target, in tiles that stay in the cache.
    constexpr int64_t kTile = 64;
    for (int64_t c = 0; c < count; c += kTile)
      for (int64_t i = 0; i < now; ++i)
        lost += convert_floats(
            source.type, strip.subspan(static_cast<size_t>((i * count + c) * width)), target.type,
            target.at(c, row + i), target.stride, std::min(kTile, count - c));
  }
  return lost;
}

}  // namespace trireme::convert
