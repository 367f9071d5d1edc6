// Bench cases: activations, casts and sums, element by element.
#include <cmath>

#include "app/bench_case.hpp"

namespace trireme::app {
namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

// An element of the output from the elements of the inputs at the same place.
using ElementRule = std::function<Expected(const std::vector<double>&)>;

OpCase element_case(BenchData& data, const std::string& what, std::vector<TensorView> inputs,
                    TensorView output, std::function<void()> call, ElementRule rule) {
  double bytes = static_cast<double>(output.bytes());
  RowCheck check{.what = what, .outputs = {output}, .call = call};
  for (const TensorView& input : inputs) {
    bytes += static_cast<double>(input.bytes());
    check.inputs.emplace_back(input);
  }
  check.reference = [rule = std::move(rule)](int64_t, const RowCheck::Rows& in) {
    std::vector<Expected> row;
    std::vector<double> values(in.size());
    for (size_t c = 0; c < in[0].size(); ++c) {
      for (size_t i = 0; i < in.size(); ++i) values[i] = in[i][c];
      row.push_back(rule(values));
    }
    return RowCheck::Outputs{row};
  };
  Stream* stream = &data.stream();
  return {.size = fmt::format("{} x {}", output.shape[0], output.shape[1]),
          .bytes = bytes,
          .call = std::move(call),
          .check = [=, check = std::move(check)] { check_rows(*stream, check); }};
}

OpCase gelu_forward_case(BenchData& d, const BenchSizes& s) {
  const TensorView x = d.random({s.tokens, s.ffn}, s.type, -4, 4);
  const TensorView y = d.poisoned({s.tokens, s.ffn}, s.type);
  Stream* stream = &d.stream();
  return element_case(
      d, "gelu_forward", {x}, y, [=] { gelu_forward(*stream, x, y); },
      [](const std::vector<double>& in) { return expected(gelu(in[0]), std::abs(in[0])); });
}

OpCase gelu_backward_case(BenchData& d, const BenchSizes& s) {
  const TensorView x = d.random({s.tokens, s.ffn}, s.type, -4, 4);
  const TensorView dy = d.random({s.tokens, s.ffn}, s.type);
  const TensorView dx = d.poisoned({s.tokens, s.ffn}, s.type);
  Stream* stream = &d.stream();
  return element_case(
      d, "gelu_backward", {x, dy}, dx, [=] { gelu_backward(*stream, x, dy, dx); },
      [](const std::vector<double>& in) {
        return expected(in[1] * gelu_slope(in[0]), std::abs(in[1]));
      });
}

OpCase swiglu_forward_case(BenchData& d, const BenchSizes& s) {
  const Matrix x = d.random({s.tokens, 2 * s.ffn}, s.type, -4, 4);
  const TensorView y = d.poisoned({s.tokens, s.ffn}, s.type);
  Stream* stream = &d.stream();
  RowCheck check{.what = "swiglu_forward", .inputs = {x}, .outputs = {y}};
  check.call = [=] { swiglu_forward(*stream, x, y); };
  check.reference = [f = static_cast<size_t>(s.ffn)](int64_t, const RowCheck::Rows& in) {
    std::vector<Expected> row;
    for (size_t c = 0; c < f; ++c) {
      const double gate = in[0][c], up = in[0][f + c];
      row.push_back(expected(gate * logistic(gate) * up, std::abs(gate * up)));
    }
    return RowCheck::Outputs{row};
  };
  return {.size = fmt::format("{} x {}", s.tokens, s.ffn),
          .bytes = 3 * static_cast<double>(y.bytes()),
          .call = check.call,
          .check = [=] { check_rows(*stream, check); }};
}

OpCase swiglu_backward_case(BenchData& d, const BenchSizes& s) {
  const Matrix x = d.random({s.tokens, 2 * s.ffn}, s.type, -4, 4);
  const TensorView dy = d.random({s.tokens, s.ffn}, s.type);
  const Matrix dx = d.poisoned({s.tokens, 2 * s.ffn}, s.type);
  Stream* stream = &d.stream();
  RowCheck check{.what = "swiglu_backward", .inputs = {x, dy}, .outputs = {dx}};
  check.call = [=] { swiglu_backward(*stream, x, dy, dx); };
  check.reference = [f = static_cast<size_t>(s.ffn)](int64_t, const RowCheck::Rows& in) {
    std::vector<Expected> row(2 * f);
    for (size_t c = 0; c < f; ++c) {
      const double gate = in[0][c], up = in[0][f + c], dy_c = in[1][c];
      const double sigma = logistic(gate);
      row[c] = expected(dy_c * up * sigma * (1 + gate * (1 - sigma)),
                        std::abs(dy_c * up) * (1 + std::abs(gate)));
      row[f + c] = expected(dy_c * gate * sigma, std::abs(dy_c * gate));
    }
    return RowCheck::Outputs{row};
  };
  return {.size = fmt::format("{} x {}", s.tokens, s.ffn),
          .bytes = 5 * static_cast<double>(dy.bytes()),
          .call = check.call,
          .check = [=] { check_rows(*stream, check); }};
}

OpCase cast_case(BenchData& d, const BenchSizes& s, DType from_type, DType to_type) {
  const TensorView from = d.random({s.tokens, s.ffn}, from_type);
  const TensorView to = d.poisoned({s.tokens, s.ffn}, to_type);
  Stream* stream = &d.stream();
  return element_case(
      d, fmt::format("cast_{}_{}", name_of(from_type), name_of(to_type)), {from}, to,
      [=] { cast(*stream, from, to); },
      [=](const std::vector<double>& in) {
        const auto value = static_cast<float>(in[0]);
        return Expected{.value = to_type == DType::bf16 ? from_bf16(to_bf16(value)) : value,
                        .exact = true};
      });
}

OpCase add_case(BenchData& d, const BenchSizes& s, DType type) {
  const TensorView x = d.random({s.tokens, s.ffn}, type);
  const TensorView y = d.random({s.tokens, s.ffn}, type);
  Stream* stream = &d.stream();
  return element_case(
      d, fmt::format("add_{}", name_of(type)), {x, y}, y, [=] { add(*stream, x, y); },
      [](const std::vector<double>& in) {
        return expected(in[0] + in[1], std::abs(in[0]) + std::abs(in[1]));
      });
}

}  // namespace

std::vector<OpRow> pointwise_rows(const BenchSizes& s) {
  std::vector<OpRow> rows = {
      {"gelu_forward", [s](BenchData& d) { return gelu_forward_case(d, s); }},
      {"gelu_backward", [s](BenchData& d) { return gelu_backward_case(d, s); }},
      {"swiglu_forward", [s](BenchData& d) { return swiglu_forward_case(d, s); }},
      {"swiglu_backward", [s](BenchData& d) { return swiglu_backward_case(d, s); }},
      {"cast_f32_bf16", [s](BenchData& d) { return cast_case(d, s, DType::f32, DType::bf16); }},
      {"cast_bf16_f32", [s](BenchData& d) { return cast_case(d, s, DType::bf16, DType::f32); }},
      {"add_f32", [s](BenchData& d) { return add_case(d, s, DType::f32); }}};
  if (s.type == DType::bf16)
    rows.push_back({"add_bf16", [s](BenchData& d) { return add_case(d, s, DType::bf16); }});
  return rows;
}

}  // namespace trireme::app
