// Sums and maxima in a fixed order: the bits depend on the contributions and the ranks alone, not
// on sizes, threads or the algorithms of an MPI library.
#include "comm/cpu/reduction.hpp"

#include <algorithm>
#include <array>

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Elements that are accumulated at a time: they stay in the first-level cache.
constexpr int64_t kBlock = 2048;
// Below this many elements, starting threads costs more than it saves.
constexpr int64_t kThreadedCount = int64_t{1} << 17;

float load(const float* from, int64_t i) {
  return from[i];
}
float load(const uint16_t* from, int64_t i) {
  return from_bf16(from[i]);
}
void store(float* to, int64_t i, float value) {
  to[i] = value;
}
void store(uint16_t* to, int64_t i, float value) {
  to[i] = to_bf16(value);
}

struct Sum {
  float operator()(float a, float b) const { return a + b; }
};
struct Max {
  float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

template <class T, class Combine>
void reduce_block(std::span<const std::byte* const> parts, int64_t first, int64_t count, T* out) {
  std::array<float, kBlock> total;
  const Combine combine;
  const T* from = reinterpret_cast<const T*>(parts[0]) + first;
  for (int64_t i = 0; i < count; ++i) total[static_cast<size_t>(i)] = load(from, i);
  for (const std::byte* part : parts.subspan(1)) {
    from = reinterpret_cast<const T*>(part) + first;
    for (int64_t i = 0; i < count; ++i) {
      float& t = total[static_cast<size_t>(i)];
      t = combine(t, load(from, i));
    }
  }
  for (int64_t i = 0; i < count; ++i) store(out + first, i, total[static_cast<size_t>(i)]);
}

template <class T, class Combine>
void reduce_all(std::span<const std::byte* const> parts, int64_t count, std::byte* out) {
  T* const to = reinterpret_cast<T*>(out);
#pragma omp parallel for if (count >= kThreadedCount)
  for (int64_t first = 0; first < count; first += kBlock)
    reduce_block<T, Combine>(parts, first, std::min(kBlock, count - first), to);
}

}  // namespace

void reduce_in_order(DType type, Reduce how, std::span<const std::byte* const> parts, int64_t count,
                     std::byte* out) {
  if (type == DType::f32)
    return how == Reduce::sum ? reduce_all<float, Sum>(parts, count, out)
                              : reduce_all<float, Max>(parts, count, out);
  return how == Reduce::sum ? reduce_all<uint16_t, Sum>(parts, count, out)
                            : reduce_all<uint16_t, Max>(parts, count, out);
}

}  // namespace trireme::inline TRIREME_BACKEND
