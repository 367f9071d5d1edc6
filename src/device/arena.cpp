// Bump allocation, dry or real, with bytes by purpose. One definition for both twins.
#include <algorithm>

#include "trireme/base/checked.hpp"
#include "trireme/device/device.hpp"

namespace trireme::inline TRIREME_BACKEND {

Arena Arena::real(size_t bytes) {
  Arena arena;
  arena.buffer_ = Buffer(bytes, Memory::device);
  arena.dry_ = false;
  return arena;
}

TensorView Arena::take(Shape shape, DType dtype, std::string_view purpose) {
  const int64_t content = checked_mul(shape.elements(), static_cast<int64_t>(size_of(dtype)));
  const auto bytes = static_cast<size_t>(round_up(content, static_cast<int64_t>(kAlignment)));
  require(
      dry_ || bytes <= buffer_.bytes() - used_, ExitCode::internal,
      "arena of {} bytes: {} {} for '{}' does not fit after {} bytes; the dry walk took another "
      "path than the run",
      buffer_.bytes(), name_of(dtype), shape.text(), purpose, used_);
  auto line = std::find_if(lines_.begin(), lines_.end(),
                           [&](const ArenaLine& l) { return l.purpose == purpose; });
  if (line == lines_.end()) {
    line = lines_.insert(line, {std::string(purpose), 0});
    live_.push_back(0);
  }
  const auto index = static_cast<size_t>(line - lines_.begin());
  std::byte* data = dry_ ? nullptr : buffer_.data() + used_;
  used_ += bytes;
  live_[index] += bytes;
  pieces_.push_back({used_, index});
  if (used_ > high_water_) {
    high_water_ = used_;
    for (size_t i = 0; i < lines_.size(); ++i) lines_[i].bytes = live_[i];
  }
  return {data, shape, dtype};
}

void Arena::rewind(size_t mark) {
  require(mark <= used_, ExitCode::internal, "arena rewound to {} of {} used bytes", mark, used_);
  while (!pieces_.empty() && pieces_.back().end > mark) {
    const Piece piece = pieces_.back();
    pieces_.pop_back();
    const size_t first = pieces_.empty() ? 0 : pieces_.back().end;
    live_[piece.line] -= piece.end - first;
  }
  require((pieces_.empty() ? 0 : pieces_.back().end) == mark, ExitCode::internal,
          "arena rewound to {} bytes, which is inside a piece", mark);
  used_ = mark;
}

}  // namespace trireme::inline TRIREME_BACKEND
