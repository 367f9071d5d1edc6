// LayerNorm and RMSNorm, fused with the residual add before them.
#include "ops/cpu/norm.hpp"
#include "ops/cpu/residual.hpp"
#include "ops/cpu/storage.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace {

// normalized [width] = (x - mean) * inverse * gain + bias; `bias` may be null.
template <class Storage>
void normalize_row(const typename Storage::Element* x, const typename Storage::Element* gain,
                   const typename Storage::Element* bias, typename Storage::Element* normalized,
                   int64_t width, const RowStatistics& row) {
  const float mean = row.mean;
  const float inverse = row.inverse;
  if (bias == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i)
      normalized[i] =
          Storage::store((Storage::load(x[i]) - mean) * inverse * Storage::load(gain[i]));
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < width; ++i)
    normalized[i] = Storage::store((Storage::load(x[i]) - mean) * inverse * Storage::load(gain[i]) +
                                   Storage::load(bias[i]));
}

void check(const NormForward& call, const Shape& width) {
  const DType type = call.residual_in.dtype;
  require_view(call.gain, width, type, "norm_forward: gain");
  if (!call.bias.empty()) require_view(call.bias, width, type, "norm_forward: bias");
  if (!call.delta_bias.empty())
    require_view(call.delta_bias, width, type, "norm_forward: delta_bias");
  require(call.kind == NormKind::layer_norm || call.bias.empty(), ExitCode::internal,
          "norm_forward: rms_norm has no bias");
  require_like(call.normalized, call.residual_in, "norm_forward: normalized");
  if (!call.delta.empty()) require_like(call.delta, call.residual_in, "norm_forward: delta");
  if (!call.delta.empty() || !call.residual_out.empty())
    require_like(call.residual_out, call.residual_in, "norm_forward: residual_out");
  require(call.residual_in.elements() % width[0] == 0, ExitCode::internal,
          "norm_forward: residual_in is {}, not rows of {}", call.residual_in.shape.text(),
          width[0]);
}

template <class Storage>
void forward(const NormForward& call, const DropoutMask& mask) {
  using Element = typename Storage::Element;
  const int64_t width = call.gain.elements();
  const Element* residual = call.residual_in.ptr<Element>();
  const Element* delta = call.delta.empty() ? nullptr : call.delta.ptr<Element>();
  const Element* delta_bias = call.delta_bias.empty() ? nullptr : call.delta_bias.ptr<Element>();
  Element* out = call.residual_out.empty() ? nullptr : call.residual_out.ptr<Element>();
  const Element* gain = call.gain.ptr<Element>();
  const Element* bias = call.bias.empty() ? nullptr : call.bias.ptr<Element>();
  Element* normalized = call.normalized.ptr<Element>();
  for_rows(call.residual_in.elements() / width, width, [&](int64_t r) {
    const int64_t at = r * width;
    if (delta != nullptr)
      add_residual_row<Storage>(residual + at, delta + at, delta_bias, out + at, width, mask, r);
    else if (out != nullptr && out != residual)
      std::copy(residual + at, residual + at + width, out + at);
    // From the stored, rounded sum: the backward pass sees just that.
    const Element* x = out != nullptr ? out + at : residual + at;
    normalize_row<Storage>(x, gain, bias, normalized + at, width,
                           row_statistics<Storage>(x, width, call.kind, call.epsilon));
  });
}

}  // namespace

void norm_forward(Stream&, const NormForward& call) {
  require(!call.gain.empty(), ExitCode::internal, "norm_forward: no gain");
  check(call, {call.gain.elements()});
  if (call.residual_in.empty()) return;
  const DropoutMask mask(call.dropout);
  with_storage(call.residual_in.dtype, "norm_forward",
               [&]<class Storage>(Storage) { forward<Storage>(call, mask); });
}

}  // namespace trireme::inline TRIREME_BACKEND
