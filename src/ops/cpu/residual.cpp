// Residual add with bias and dropout, and the gradient through dropout.
#include "ops/cpu/residual.hpp"

#include "ops/cpu/storage.hpp"

namespace trireme::inline TRIREME_BACKEND {

void residual_add(Stream&, const ResidualAdd& call) {
  require_like(call.delta, call.residual, "residual_add: delta");
  require_like(call.out, call.residual, "residual_add: out");
  if (call.residual.empty()) return;
  const int64_t width = call.residual.shape[call.residual.shape.dims - 1];
  const bool has_bias = !call.delta_bias.empty();
  if (has_bias)
    require_view(call.delta_bias, {width}, call.residual.dtype, "residual_add: delta_bias");
  const DropoutMask mask(call.dropout);
  with_storage(call.residual.dtype, "residual_add", [&]<class Storage>(Storage) {
    using Element = typename Storage::Element;
    const Element* residual = call.residual.ptr<Element>();
    const Element* delta = call.delta.ptr<Element>();
    const Element* bias = has_bias ? call.delta_bias.ptr<Element>() : nullptr;
    Element* out = call.out.ptr<Element>();
    for_rows(call.residual.elements() / width, width, [&](int64_t r) {
      const int64_t at = r * width;
      add_residual_row<Storage>(residual + at, delta + at, bias, out + at, width, mask, r);
    });
  });
}

void dropout(Stream& stream, const Dropout& call) {
  require_like(call.out, call.x, "dropout: out");
  if (call.x.empty()) return;
  const DropoutMask mask(call.site);
  if (!mask.on()) {
    if (call.out.data != call.x.data) copy(stream, call.x, call.out.as(call.x.shape));
    return;
  }
  const int64_t width = call.x.shape[call.x.shape.dims - 1];
  with_storage(call.x.dtype, "dropout", [&]<class Storage>(Storage) {
    using Element = typename Storage::Element;
    for_rows(call.x.elements() / width, width, [&](int64_t r) {
      const Element* x = call.x.ptr<Element>() + r * width;
      Element* out = call.out.ptr<Element>() + r * width;
      for_tiles(width, [&](int64_t first, int64_t count) {
        alignas(64) float value[kTile];
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) value[i] = Storage::load(x[first + i]);
        mask.apply(r, first, count, value);
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) out[first + i] = Storage::store(value[i]);
      });
    });
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
