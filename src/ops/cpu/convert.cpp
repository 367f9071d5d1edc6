// Conversion between storage types, and addition.
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int64_t kBlock = 16384;

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

}  // namespace trireme::inline TRIREME_BACKEND
