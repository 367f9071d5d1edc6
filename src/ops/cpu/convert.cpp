// Conversion between storage types, and addition.
#include <array>

#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int64_t kBlock = 16384;
constexpr int64_t kSumBlock = 2048;  // its sums in f32 stay in the first-level cache

template <class From, class To>
void convert(const TensorView& from, const TensorView& to) {
  const auto* x = reinterpret_cast<const typename From::Element*>(from.data);
  auto* y = reinterpret_cast<typename To::Element*>(to.data);
  for_blocks(from.elements(), kBlock, [&](int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) y[i] = To::store(From::load(x[i]));
  });
}

}  // namespace

void cast(Stream& stream, TensorView from, TensorView to) {
  require(from.elements() == to.elements(), ExitCode::internal, "cast of {} to {}",
          from.shape.text(), to.shape.text());
  if (from.dtype == to.dtype) return copy(stream, from, to);
  with_storage(from.dtype, "cast", [&](auto source) {
    with_storage(to.dtype, "cast",
                 [&](auto target) { convert<decltype(source), decltype(target)>(from, to); });
  });
}

void add(Stream&, TensorView x, TensorView y) {
  require_like(x, y, "add: x");
  with_storage(y.dtype, "add", [&](auto storage) {
    using Storage = decltype(storage);
    const auto* a = reinterpret_cast<const typename Storage::Element*>(x.data);
    auto* b = reinterpret_cast<typename Storage::Element*>(y.data);
    for_blocks(y.elements(), kBlock, [&](int64_t first, int64_t last) {
#pragma omp simd
      for (int64_t i = first; i < last; ++i)
        b[i] = Storage::store(Storage::load(a[i]) + Storage::load(b[i]));
    });
  });
}

void sum_parts(Stream&, TensorView parts, TensorView sum) {
  const int64_t count = sum.elements(), n = count == 0 ? 0 : parts.elements() / count;
  require(parts.dtype == sum.dtype && parts.elements() == n * count, ExitCode::internal,
          "sum_parts: parts is {} {}, the sum {} {}", name_of(parts.dtype), parts.shape.text(),
          name_of(sum.dtype), sum.shape.text());
  if (n == 0) return;
  with_storage(sum.dtype, "sum_parts", [&](auto storage) {
    using Storage = decltype(storage);
    const auto* from = reinterpret_cast<const typename Storage::Element*>(parts.data);
    auto* to = reinterpret_cast<typename Storage::Element*>(sum.data);
    for_blocks(count, kSumBlock, [&](int64_t first, int64_t last) {
      std::array<float, kSumBlock> total{};
      float* t = total.data();
      const int64_t width = last - first;
      for (int64_t part = 0; part < n; ++part) {
        const auto* x = from + part * count + first;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) t[i] += Storage::load(x[i]);
      }
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) to[first + i] = Storage::store(t[i]);
    });
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
