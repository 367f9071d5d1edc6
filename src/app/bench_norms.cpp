// Bench cases: norms fused with the residual add, the residual add alone, dropout.
#include <cmath>
#include <numeric>

#include "app/bench_case.hpp"

namespace trireme::app {
namespace {

constexpr float kProbability = 0.1f;

DropoutSite dropout_site(BenchData& d, const BenchSizes& s) {
  DropoutSite site{.probability = kProbability, .site = 8 * 3 + 2, .sample_offset = 2};
  site.sequence = s.sequence;
  site.state = d.state(bench_step_state());
  return site;
}

// (x - mean) * inverse is the normalized row; the mean is 0 for rms_norm.
struct Statistics {
  double mean = 0, inverse = 0;
};
template <class Values>
Statistics statistics(const Values& x, NormKind kind, double epsilon) {
  const auto n = static_cast<double>(x.size());
  Statistics s;
  if (kind == NormKind::layer_norm) s.mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0;
  for (const auto value : x) squares += (value - s.mean) * (value - s.mean);
  s.inverse = 1 / std::sqrt(squares / n + epsilon);
  return s;
}

// Residual plus dropout(delta + bias), as an operation stores it.
std::vector<Expected> sum_row(const std::vector<std::vector<float>>& in,
                              const std::vector<float>& bias, const DropoutSite& site,
                              int64_t row) {
  std::vector<Expected> sums;
  for (size_t c = 0; c < in[0].size(); ++c) {
    const double delta = static_cast<double>(in[1][c]) + (bias.empty() ? 0.0 : bias[c]);
    const double factor = dropout_factor(site, bench_step_state(), row, static_cast<int64_t>(c));
    sums.push_back(expected(in[0][c] + factor * delta, std::abs(in[0][c]) + std::abs(delta)));
  }
  return sums;
}

// Statistics are those of the stored sum, so a bf16 sum shifts a normalized value by its rounding.
std::vector<Expected> normalized_row(const std::vector<Expected>& x, const NormForward& call,
                                     const std::vector<float>& gain,
                                     const std::vector<float>& bias) {
  std::vector<double> values;
  for (const Expected& e : x) values.push_back(e.value);
  const Statistics s = statistics(values, call.kind, call.epsilon);
  const bool rounded = call.residual_in.dtype == DType::bf16 && !call.delta.empty();
  std::vector<Expected> row;
  for (size_t c = 0; c < values.size(); ++c) {
    const double shift = bias.empty() ? 0.0 : bias[c];
    const double scale = std::abs(gain[c]) * s.inverse;
    const double terms = scale * (std::abs(values[c]) + std::abs(s.mean));
    row.push_back(
        {.value = gain[c] * s.inverse * (values[c] - s.mean) + shift,
         .slack = (rounded ? 0x1p-8 : 1e-5) * terms + scale * x[c].slack + 1e-5 * std::abs(shift)});
  }
  return row;
}

enum class Added : uint8_t { nothing, delta, dropped_delta };

OpCase norm_forward_case(BenchData& d, const BenchSizes& s, NormKind kind, Added added) {
  const Shape shape{s.tokens, s.hidden};
  const bool layer_norm = kind == NormKind::layer_norm, adds = added != Added::nothing;
  NormForward call{.kind = kind, .residual_in = d.random(shape, s.type, -1, 1.5f)};
  call.gain = d.random({s.hidden}, s.type, 0.5f, 1.5f);
  if (layer_norm) call.bias = d.random({s.hidden}, s.type);
  if (adds) {
    call.delta = d.random(shape, s.type);
    call.residual_out = d.poisoned(shape, s.type);
    if (layer_norm) call.delta_bias = d.random({s.hidden}, s.type);
  }
  if (added == Added::dropped_delta) call.dropout = dropout_site(d, s);
  call.normalized = d.poisoned(shape, s.type);
  Stream* stream = &d.stream();
  const auto host = [&](const TensorView& v) {
    return v.empty() ? std::vector<float>{} : read(*stream, v);
  };
  RowCheck check{.what = layer_norm ? "layer_norm_forward" : "rms_norm_forward",
                 .inputs = {call.residual_in},
                 .outputs = {call.normalized}};
  if (adds) {
    check.inputs.emplace_back(call.delta);
    check.outputs.emplace_back(call.residual_out);
  }
  check.call = [=] { norm_forward(*stream, call); };
  check.reference = [=, gain = host(call.gain), bias = host(call.bias),
                     delta_bias = host(call.delta_bias)](int64_t row, const RowCheck::Rows& in) {
    std::vector<Expected> x;
    if (adds)
      x = sum_row(in, delta_bias, call.dropout, row);
    else
      for (const float value : in[0]) x.push_back({.value = value});
    return RowCheck::Outputs{normalized_row(x, call, gain, bias), x};
  };
  return {.size = fmt::format("{} x {}", s.tokens, s.hidden),
          .bytes = (adds ? 4 : 2) * static_cast<double>(call.normalized.bytes()),
          .call = check.call,
          .check = [=] { check_rows(*stream, check); }};
}

std::vector<Expected> backward_row(const NormBackward& call, const std::vector<float>& gain,
                                   const RowCheck::Rows& in) {
  const std::vector<float>&x = in[0], &dy = in[1], &old = in[2];
  const Statistics s = statistics(x, call.kind, call.epsilon);
  const auto n = static_cast<double>(x.size());
  double mean_g = 0, mean_gx = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    const double g = static_cast<double>(dy[c]) * gain[c];
    if (call.kind == NormKind::layer_norm) mean_g += g / n;
    mean_gx += g * (x[c] - s.mean) * s.inverse / n;
  }
  std::vector<Expected> row;
  for (size_t c = 0; c < x.size(); ++c) {
    const double g = static_cast<double>(dy[c]) * gain[c];
    const double hat = (x[c] - s.mean) * s.inverse;
    row.push_back(expected(old[c] + s.inverse * (g - mean_g - hat * mean_gx),
                           std::abs(old[c]) + s.inverse * (std::abs(g) + std::abs(hat))));
  }
  return row;
}

// d_gain += sum over rows of dy * normalized x, d_bias += sum over rows of dy: sampled columns.
void check_parameter_gradients(Stream& stream, const NormBackward& call, const std::string& what,
                               const std::function<void()>& check_inputs) {
  const std::vector<int64_t> cols = samples(call.gain.elements(), 48);
  std::vector<Statistics> rows;
  for_each_row(stream, call.x, [&](int64_t, std::span<const float> x) {
    rows.push_back(statistics(x, call.kind, call.epsilon));
  });
  const auto x = read_lines(stream, call.x, Axis::columns, cols);
  const auto dy = read_lines(stream, call.d_normalized, Axis::columns, cols);
  const bool biased = !call.d_bias.empty();
  const std::vector<float> old_gain = read(stream, call.d_gain);
  const std::vector<float> old_bias = biased ? read(stream, call.d_bias) : old_gain;
  check_inputs();  // calls the operation
  const std::vector<float> d_gain = read(stream, call.d_gain);
  const std::vector<float> d_bias = biased ? read(stream, call.d_bias) : old_gain;
  for (size_t i = 0; i < cols.size(); ++i) {
    const auto c = static_cast<size_t>(cols[i]);
    double gain = old_gain[c], bias = old_bias[c], terms = std::abs(gain);
    for (size_t r = 0; r < rows.size(); ++r) {
      const double term = dy[i][r] * (x[i][r] - rows[r].mean) * rows[r].inverse;
      gain += term;
      terms += std::abs(term) + std::abs(dy[i][r]);
      bias += dy[i][r];
    }
    require_near({what, 0, cols[i]}, DType::f32, d_gain[c], expected(gain, terms));
    if (biased) require_near({what, 1, cols[i]}, DType::f32, d_bias[c], expected(bias, terms));
  }
}

OpCase norm_backward_case(BenchData& d, const BenchSizes& s, NormKind kind) {
  const Shape shape{s.tokens, s.hidden};
  NormBackward call{.kind = kind, .x = d.random(shape, s.type, -1, 1.5f)};
  call.gain = d.random({s.hidden}, s.type, 0.5f, 1.5f);
  call.d_normalized = d.random(shape, s.type);
  call.d_residual = d.random(shape, s.type);
  call.d_gain = d.random({s.hidden}, DType::f32);
  if (kind == NormKind::layer_norm) call.d_bias = d.random({s.hidden}, DType::f32);
  Stream* stream = &d.stream();
  RowCheck check{.what = kind == NormKind::layer_norm ? "layer_norm_backward" : "rms_norm_backward",
                 .inputs = {call.x, call.d_normalized, call.d_residual},
                 .outputs = {call.d_residual}};
  check.call = [=] { norm_backward(*stream, call); };
  check.reference = [=, gain = read(*stream, call.gain)](int64_t, const RowCheck::Rows& in) {
    return RowCheck::Outputs{backward_row(call, gain, in)};
  };
  return {.size = fmt::format("{} x {}", s.tokens, s.hidden),
          .bytes = 4 * static_cast<double>(call.x.bytes()),  // x, dy, d_residual read and written
          .call = check.call,
          .check = [=] {
            check_parameter_gradients(*stream, call, check.what + ", parameters",
                                      [&] { check_rows(*stream, check); });
          }};
}

OpCase residual_add_case(BenchData& d, const BenchSizes& s, Added added) {
  const Shape shape{s.tokens, s.hidden};
  ResidualAdd call{.residual = d.random(shape, s.type), .delta = d.random(shape, s.type)};
  if (s.bias) call.delta_bias = d.random({s.hidden}, s.type);
  call.out = d.poisoned(shape, s.type);
  if (added == Added::dropped_delta) call.dropout = dropout_site(d, s);
  Stream* stream = &d.stream();
  RowCheck check{.what = "residual_add",
                 .inputs = {call.residual, call.delta},
                 .outputs = {call.out},
                 .call = [=] { residual_add(*stream, call); }};
  const std::vector<float> bias = s.bias ? read(*stream, call.delta_bias) : std::vector<float>{};
  check.reference = [=](int64_t row, const RowCheck::Rows& in) {
    return RowCheck::Outputs{sum_row(in, bias, call.dropout, row)};
  };
  return {.size = fmt::format("{} x {}", s.tokens, s.hidden),
          .bytes = 3 * static_cast<double>(call.out.bytes()),
          .call = check.call,
          .check = [=] { check_rows(*stream, check); }};
}

OpCase dropout_case(BenchData& d, const BenchSizes& s) {
  const Shape shape{s.tokens, s.hidden};
  const Dropout call{d.random(shape, s.type), d.poisoned(shape, s.type), dropout_site(d, s)};
  Stream* stream = &d.stream();
  RowCheck check{.what = "dropout", .inputs = {call.x}, .outputs = {call.out}};
  check.call = [=] { dropout(*stream, call); };
  check.reference = [=](int64_t row, const RowCheck::Rows& in) {
    std::vector<Expected> values;
    for (size_t c = 0; c < in[0].size(); ++c)
      values.push_back(
          {in[0][c] * dropout_factor(call.site, bench_step_state(), row, static_cast<int64_t>(c))});
    return RowCheck::Outputs{values};
  };
  return {.size = fmt::format("{} x {}", s.tokens, s.hidden),
          .bytes = 2 * static_cast<double>(call.out.bytes()),
          .call = check.call,
          .check = [=] { check_rows(*stream, check); }};
}

}  // namespace

std::vector<OpRow> norm_rows(const BenchSizes& s) {
  std::vector<OpRow> rows;
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    const std::string name = kind == NormKind::layer_norm ? "layer_norm_" : "rms_norm_";
    const auto forward = [&](const char* end, Added added) {
      rows.push_back(
          {name + end, [=](BenchData& d) { return norm_forward_case(d, s, kind, added); }});
    };
    forward("forward", Added::nothing);
    forward("forward_delta", Added::delta);
    forward("forward_dropout", Added::dropped_delta);
    rows.push_back(
        {name + "backward", [=](BenchData& d) { return norm_backward_case(d, s, kind); }});
  }
  rows.push_back(
      {"residual_add", [s](BenchData& d) { return residual_add_case(d, s, Added::delta); }});
  rows.push_back({"residual_add_dropout",
                  [s](BenchData& d) { return residual_add_case(d, s, Added::dropped_delta); }});
  rows.push_back({"dropout", [s](BenchData& d) { return dropout_case(d, s); }});
  return rows;
}

}  // namespace trireme::app
