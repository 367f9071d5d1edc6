// Bench cases: matrix products of a layer and of the head, and column sums.
#include <cmath>

#include "app/bench_case.hpp"

namespace trireme::app {
namespace {

// Sampled rows and columns of the result against dot products in f64.
void check_gemm(Stream& stream, const Gemm& call, const std::string& what) {
  const std::vector<int64_t> rows = samples(call.c.rows, 12), cols = samples(call.c.cols, 48);
  const auto a = read_lines(stream, call.a, call.transpose_a ? Axis::columns : Axis::rows, rows);
  const auto b = read_lines(stream, call.b, call.transpose_b ? Axis::rows : Axis::columns, cols);
  const auto old = read_lines(stream, call.c, Axis::rows, rows);
  const bool biased = call.epilogue != Epilogue::none;
  const std::vector<float> bias = biased ? read(stream, call.bias) : std::vector<float>{};
  gemm(stream, call);
  require_written(stream, call.c, what);
  const bool activated = call.epilogue == Epilogue::bias_gelu;
  const Matrix& product = activated ? call.pre_activation : call.c;
  if (activated) require_written(stream, product, what);
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::vector<float> values = read_row(stream, product, rows[r]);
    const std::vector<float> outputs = read_row(stream, call.c, rows[r]);
    for (size_t c = 0; c < cols.size(); ++c) {
      const auto col = static_cast<size_t>(cols[c]);
      double sum = biased ? bias[col] : 0;
      if (call.beta != 0) sum += static_cast<double>(call.beta) * old[r][col];
      double magnitude = std::abs(sum);
      for (size_t i = 0; i < a[r].size(); ++i) {
        sum += static_cast<double>(a[r][i]) * b[c][i];
        magnitude += std::abs(static_cast<double>(a[r][i]) * b[c][i]);
      }
      const Place place{what, rows[r], cols[c]};
      require_near(place, product.dtype, values[col], expected(sum, magnitude));
      if (activated)
        require_near(place, call.c.dtype, outputs[col],
                     expected(gelu(values[col]), std::abs(values[col])));
    }
  }
}

OpCase gemm_case(BenchData& data, const Gemm& call, const std::string& what) {
  const int64_t m = call.c.rows, n = call.c.cols;
  const int64_t k = call.transpose_a ? call.a.rows : call.a.cols;
  Stream* stream = &data.stream();
  return {.size = fmt::format("{} x {} x {}", m, n, k),
          .flops = 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .call = [=] { gemm(*stream, call); },
          .check = [=] { check_gemm(*stream, call, what); }};
}

struct Linear {
  std::string name;
  int64_t in = 0, out = 0;
  Epilogue epilogue = Epilogue::none;
};

// y [n,out] = x [n,in] w^T, w [out,in]; dx = dy w; dw (f32) += dy^T x.
void add_linear(std::vector<OpRow>& rows, const Linear& linear, int64_t n, DType type) {
  const int64_t in = linear.in, out = linear.out;
  const float scale = 1 / std::sqrt(static_cast<float>(in));
  const std::string name = "gemm_" + linear.name;
  rows.push_back({name + "_forward", [=](BenchData& d) {
                    Gemm call{.a = d.random({n, in}, type),
                              .b = d.random({out, in}, type, -scale, scale),
                              .c = d.poisoned({n, out}, type)};
                    call.transpose_b = true;
                    call.epilogue = linear.epilogue;
                    if (linear.epilogue != Epilogue::none) call.bias = d.random({out}, type);
                    if (linear.epilogue == Epilogue::bias_gelu)
                      call.pre_activation = d.poisoned({n, out}, type);
                    return gemm_case(d, call, name + "_forward");
                  }});
  rows.push_back({name + "_input", [=](BenchData& d) {
                    const Gemm call{.a = d.random({n, out}, type),
                                    .b = d.random({out, in}, type, -scale, scale),
                                    .c = d.poisoned({n, in}, type)};
                    return gemm_case(d, call, name + "_input");
                  }});
  rows.push_back({name + "_weight", [=](BenchData& d) {
                    Gemm call{.a = d.random({n, out}, type), .b = d.random({n, in}, type)};
                    call.c = d.random({out, in}, DType::f32);
                    call.transpose_a = true;
                    call.beta = 1;
                    return gemm_case(d, call, name + "_weight");
                  }});
}

void check_column_sums(Stream& stream, const Matrix& x, TensorView sum) {
  const std::vector<int64_t> cols = samples(x.cols, 48);
  const auto columns = read_lines(stream, x, Axis::columns, cols);
  const std::vector<float> old = read(stream, sum);
  add_column_sums(stream, x, sum);
  require_written(stream, sum.as({1, sum.elements()}), "column_sums");
  const std::vector<float> values = read(stream, sum);
  const std::string what = "column_sums";
  for (size_t c = 0; c < cols.size(); ++c) {
    const auto col = static_cast<size_t>(cols[c]);
    double total = old[col];
    double magnitude = std::abs(total);
    for (const float value : columns[c]) {
      total += value;
      magnitude += std::abs(value);
    }
    require_near({what, 0, cols[c]}, DType::f32, values[col], expected(total, magnitude));
  }
}

OpCase column_sums_case(BenchData& data, const BenchSizes& s) {
  const TensorView x = data.random({s.tokens, s.ffn}, s.type);
  const TensorView sum = data.random({s.ffn}, DType::f32);
  Stream* stream = &data.stream();
  return {.size = fmt::format("{} x {}", s.tokens, s.ffn),
          .bytes = static_cast<double>(x.bytes() + 2 * sum.bytes()),
          .call = [=] { add_column_sums(*stream, x, sum); },
          .check = [=] { check_column_sums(*stream, x, sum); }};
}

}  // namespace

std::vector<OpRow> product_rows(const BenchSizes& s) {
  const Epilogue bias = s.bias ? Epilogue::bias : Epilogue::none;
  const Epilogue activation = s.bias ? Epilogue::bias_gelu : Epilogue::none;
  const std::vector<Linear> linears = {
      {"qkv", s.hidden, s.query_width() + 2 * s.kv_width(), bias},
      {"output", s.query_width(), s.hidden},  // its bias is added with the residual
      {"up", s.hidden, s.gated ? 2 * s.ffn : s.ffn, activation},
      {"down", s.ffn, s.hidden},
      {"head", s.hidden, s.padded_vocab}};
  std::vector<OpRow> rows;
  for (const Linear& linear : linears) add_linear(rows, linear, s.tokens, s.type);
  rows.push_back({"column_sums", [s](BenchData& d) { return column_sums_case(d, s); }});
  return rows;
}

}  // namespace trireme::app
