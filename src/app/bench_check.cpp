#include "app/bench_check.hpp"

#include <array>
#include <cmath>

#include "trireme/ops/dropout_mask.hpp"

namespace trireme::app {
namespace {

constexpr double kGeluSlope = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

// Largest relative error of a stored result whose arithmetic is done in f32.
double rounding(DType type) {
  return type == DType::bf16 ? 0x1p-7 : 2e-5;
}

}  // namespace

void require_near(const Place& place, DType type, float value, const Expected& e) {
  const double allowed = e.exact ? 0 : rounding(type) * std::abs(e.value) + e.slack;
  const double error = std::abs(static_cast<double>(value) - e.value);
  require(
      error <= allowed, ExitCode::internal,
      "{} is wrong on this machine: element [{}, {}] is {} instead of {} (an error of {:.3g} is "
      "allowed). Do not train on it before `make test` passes",
      place.what, place.row, place.column, value, e.value, allowed);
}

void require_written(Stream& stream, const Matrix& output, const std::string& what) {
  for_each_row(stream, output, [&](int64_t row, std::span<const float> values) {
    for (size_t c = 0; c < values.size(); ++c)
      require(!std::isnan(values[c]), ExitCode::internal,
              "{}: element [{}, {}] was not written, or is not a number", what, row, c);
  });
}

void check_rows(Stream& stream, const RowCheck& check) {
  const std::vector<int64_t> rows = samples(check.outputs[0].rows, 16);
  std::vector<RowCheck::Rows> before;  // by sampled row
  for (int64_t row : rows) {
    before.emplace_back();
    for (const Matrix& input : check.inputs) before.back().push_back(read_row(stream, input, row));
  }
  check.call();
  for (const Matrix& output : check.outputs) require_written(stream, output, check.what);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto reference = check.reference(rows[i], before[i]);
    for (size_t o = 0; o < check.outputs.size(); ++o) {
      const Matrix& output = check.outputs[o];
      const std::vector<float> row = read_row(stream, output, rows[i]);
      for (size_t c = 0; c < row.size(); ++c)
        require_near({check.what, rows[i], static_cast<int64_t>(c)}, output.dtype, row[c],
                     reference[o][c]);
    }
  }
}

double dropout_factor(const DropoutSite& site, const StepState& state, int64_t row,
                      int64_t column) {
  if (site.probability == 0) return 1;
  const int64_t place = site.row_offset + row;
  const PhiloxWords words =
      dropout_words(dropout_key(state.seed, state.step, site.site),
                    static_cast<uint32_t>(column / 4), static_cast<uint32_t>(place % site.sequence),
                    state.first_sample + site.sample_offset + place / site.sequence);
  const std::array<uint32_t, 4> four{words.x, words.y, words.z, words.w};
  const bool dropped = four[static_cast<size_t>(column % 4)] < dropout_threshold(site.probability);
  return dropped ? 0 : 1 / (1 - static_cast<double>(site.probability));
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kGeluSlope * (x + kGeluCube * x * x * x)));
}

double gelu_slope(double x) {
  const double t = std::tanh(kGeluSlope * (x + kGeluCube * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluSlope * (1 + 3 * kGeluCube * x * x);
}

}  // namespace trireme::app
