#include "trireme/model/model_shape.hpp"

#include <cmath>
#include <numbers>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

int64_t norm_parameters(const ModelShape& m) {
  return m.hidden * (m.layer_norm && m.bias ? 2 : 1);
}

int64_t layer_products(const ModelShape& m) {
  const int64_t attention = m.hidden * (2 * m.query_width() + 2 * m.kv_width());
  return attention + (m.gated ? 3 : 2) * m.hidden * m.ffn;
}

int64_t layer_biases(const ModelShape& m) {
  int64_t count = 0;
  if (m.has_qkv_bias()) count += m.query_width() + 2 * m.kv_width();
  if (m.has_output_bias()) count += m.hidden;
  if (m.has_mlp_bias()) count += (m.gated ? 2 : 1) * m.ffn + m.hidden;
  return count;
}

}  // namespace

int64_t ModelShape::parameters() const {
  const int64_t head_norms = qk_norm ? 2 * head_size : 0;
  const int64_t layer =
      layer_products(*this) + layer_biases(*this) + 2 * norm_parameters(*this) + head_norms;
  const int64_t positions = learned_positions ? max_sequence * hidden : 0;
  const int64_t tables = vocab * hidden * (tied ? 1 : 2);
  return layers * layer + tables + positions + norm_parameters(*this);
}

int64_t ModelShape::product_parameters() const {
  return layers * layer_products(*this) + vocab * hidden;
}

int64_t ModelShape::flops_per_token(int64_t sequence) const {
  return 6 * product_parameters() + 6 * layers * query_width() * sequence;
}

int64_t ModelShape::flops_per_token_full(int64_t sequence) const {
  return 6 * product_parameters() + 12 * layers * query_width() * sequence;
}

std::vector<LayerRange> layer_ranges(int64_t layers, int pp, int virtual_stages, int stage) {
  const int64_t total = int64_t{pp} * virtual_stages;
  require(
      total <= layers, ExitCode::bad_config,
      "{} layers cannot fill {} virtual stages (grid.pp {} x grid.virtual_stages {}): lower one "
      "of them",
      layers, total, pp, virtual_stages);
  // Extra layers go to the middle first, then to the first virtual stage, last to the last.
  const int64_t extra = layers % total;
  auto count = [&](int64_t v) {
    int64_t turn = v - 1;
    if (v == 0) turn = total > 1 ? total - 2 : 0;
    if (v == total - 1 && total > 1) turn = total - 1;
    return layers / total + (turn < extra ? 1 : 0);
  };
  std::vector<LayerRange> ranges;
  int64_t first = 0;
  for (int64_t v = 0; v < total; ++v) {
    if (v % pp == stage) ranges.push_back({first, first + count(v)});
    first += count(v);
  }
  return ranges;
}

std::vector<float> rope_frequencies(const ModelShape& shape) {
  const RopeScaling& scaling = shape.rope_scaling;
  std::vector<float> result;
  for (int64_t i = 0; i < shape.head_size / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_size);
    double f = std::pow(shape.rope_base, exponent);
    if (scaling.factor > 0) {
      const double wavelength = 2 * std::numbers::pi / f;
      const double length = static_cast<double>(scaling.original_length);
      if (wavelength > length / scaling.low_frequency_factor) {
        f /= scaling.factor;
      } else if (wavelength >= length / scaling.high_frequency_factor) {
        const double s = (length / wavelength - scaling.low_frequency_factor) /
                         (scaling.high_frequency_factor - scaling.low_frequency_factor);
        f = (1 - s) * f / scaling.factor + s * f;
      }
    }
    result.push_back(static_cast<float>(f));
  }
  return result;
}

}  // namespace trireme
