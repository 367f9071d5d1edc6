// Gradient of LayerNorm and RMSNorm.
//
// The gain and bias gradients are sums over rows: blocks of rows, whose number does not depend on
// the threads, add into rows of their own, which are then added up in order.
#include <vector>

#include "ops/cpu/norm.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace {

constexpr int64_t kLeastRows = 16;
constexpr int64_t kMostBlocks = 64;

// dx += inverse * (g - mean(g) - xhat * mean(g xhat)), g = d * gain; rms_norm has no mean(g).
template <class Storage>
void input_gradient_row(const typename Storage::Element* __restrict x,
                        const typename Storage::Element* __restrict gain,
                        const typename Storage::Element* __restrict d,
                        typename Storage::Element* __restrict dx, int64_t width, NormKind kind,
                        const RowStatistics& row) {
  const float mean = row.mean;
  const float inverse = row.inverse;
  float sum = 0;
  float product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (int64_t i = 0; i < width; ++i) {
    const float g = Storage::load(d[i]) * Storage::load(gain[i]);
    sum += g;
    product += g * ((Storage::load(x[i]) - mean) * inverse);
  }
  const float scale = 1.0f / static_cast<float>(width);
  const float g_mean = kind == NormKind::layer_norm ? sum * scale : 0.0f;
  const float product_mean = product * scale;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float g = Storage::load(d[i]) * Storage::load(gain[i]);
    const float xhat = (Storage::load(x[i]) - mean) * inverse;
    dx[i] = Storage::store(Storage::load(dx[i]) + inverse * (g - g_mean - xhat * product_mean));
  }
}

template <class Storage>
void parameter_gradient_row(const typename Storage::Element* __restrict x,
                            const typename Storage::Element* __restrict d, float* __restrict d_gain,
                            float* __restrict d_bias, int64_t width, const RowStatistics& row) {
  const float mean = row.mean;
  const float inverse = row.inverse;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float value = Storage::load(d[i]);
    d_gain[i] += value * ((Storage::load(x[i]) - mean) * inverse);
    d_bias[i] += value;
  }
}

// sum [width] += rows of `partial`, `stride` apart, in order.
void add_rows(const float* partial, int64_t rows, int64_t stride, int64_t width,
              const TensorView& sum) {
  if (sum.empty()) return;
  float* out = sum.ptr<float>();
  for_blocks(width, kTile, [&](int64_t first, int64_t last) {
    float total[kTile] = {};
    for (int64_t b = 0; b < rows; ++b) {
#pragma omp simd
      for (int64_t i = first; i < last; ++i) total[i - first] += partial[b * stride + i];
    }
    for (int64_t i = first; i < last; ++i) out[i] += total[i - first];
  });
}

void check(const NormBackward& call, const Shape& width) {
  const DType type = call.x.dtype;
  require_view(call.gain, width, type, "norm_backward: gain");
  require_like(call.d_normalized, call.x, "norm_backward: d_normalized");
  require_like(call.d_residual, call.x, "norm_backward: d_residual");
  if (!call.d_gain.empty()) require_view(call.d_gain, width, DType::f32, "norm_backward: d_gain");
  if (!call.d_bias.empty()) require_view(call.d_bias, width, DType::f32, "norm_backward: d_bias");
  require(call.x.elements() % width[0] == 0, ExitCode::internal,
          "norm_backward: x is {}, not rows of {}", call.x.shape.text(), width[0]);
}

template <class Storage>
void backward(const NormBackward& call) {
  using Element = typename Storage::Element;
  const int64_t width = call.gain.elements();
  const int64_t rows = call.x.elements() / width;
  const int64_t block = std::max(kLeastRows, ceil_div(rows, kMostBlocks));
  const int64_t blocks = ceil_div(rows, block);
  const bool has_parameters = !call.d_gain.empty() || !call.d_bias.empty();
  std::vector<float> partial(has_parameters ? static_cast<size_t>(2 * blocks * width) : 0);
  const Element* x = call.x.ptr<Element>();
  const Element* gain = call.gain.ptr<Element>();
  const Element* d = call.d_normalized.ptr<Element>();
  Element* dx = call.d_residual.ptr<Element>();
  for_rows(blocks, block * width, [&](int64_t b) {
    float* d_gain = has_parameters ? partial.data() + 2 * b * width : nullptr;
    for (int64_t r = b * block; r < std::min(rows, (b + 1) * block); ++r) {
      const int64_t at = r * width;
      const RowStatistics row = row_statistics<Storage>(x + at, width, call.kind, call.epsilon);
      input_gradient_row<Storage>(x + at, gain, d + at, dx + at, width, call.kind, row);
      if (has_parameters)
        parameter_gradient_row<Storage>(x + at, d + at, d_gain, d_gain + width, width, row);
    }
  });
  if (!has_parameters) return;
  add_rows(partial.data(), blocks, 2 * width, width, call.d_gain);
  add_rows(partial.data() + width, blocks, 2 * width, width, call.d_bias);
}

}  // namespace

void norm_backward(Stream&, const NormBackward& call) {
  require(!call.gain.empty(), ExitCode::internal, "norm_backward: no gain");
  check(call, {call.gain.elements()});
  if (call.x.empty()) return;
  with_storage(call.x.dtype, "norm_backward",
               [&]<class Storage>(Storage) { backward<Storage>(call); });
}

}  // namespace trireme::inline TRIREME_BACKEND
