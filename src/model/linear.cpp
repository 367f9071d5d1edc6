#include "model/linear.hpp"

namespace trireme {
namespace {

std::string bias_of(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string("weight").size()) + "bias";
}

bool follows(const ParameterTable& table, int entry, int next) {
  const ParameterEntry& a = table.entries()[static_cast<size_t>(entry)];
  const ParameterEntry& b = table.entries()[static_cast<size_t>(next)];
  return next == entry + 1 && a.group == b.group && b.offset == a.offset + a.elements();
}

}  // namespace

ColumnLinear::ColumnLinear(const ParameterStore& store, const std::vector<std::string>& weights,
                           bool bias, Outputs outputs)
    : outputs_(outputs) {
  const ParameterTable& table = store.table();
  int64_t column = 0;
  for (size_t i = 0; i < weights.size();) {
    const int first = table.find(weights[i]);
    int count = 1;
    while (outputs == Outputs::side_by_side && i + static_cast<size_t>(count) < weights.size() &&
           follows(table, first + count - 1, table.find(weights[i + static_cast<size_t>(count)])))
      ++count;
    Piece piece;
    piece.first = column;
    piece.weight = store.packed_value(first, count);
    piece.d_weight = store.packed_gradient(first, count);
    if (bias) {
      const int first_bias = table.find(bias_of(weights[i]));
      piece.bias = store.packed_value(first_bias, count);
      piece.d_bias = store.packed_gradient(first_bias, count);
    }
    column = piece.last();
    pieces_.push_back(piece);
    i += static_cast<size_t>(count);
  }
}

Matrix ColumnLinear::part(const Matrix& y, const Piece& piece) const {
  if (outputs_ == Outputs::side_by_side) return y.columns(piece.first, piece.last());
  const int64_t width = piece.last() - piece.first;
  std::byte* at = y.data + static_cast<size_t>(y.rows * piece.first) * size_of(y.dtype);
  return {at, y.rows, width, width, y.dtype};
}

void ColumnLinear::forward(Stream& stream, Matrix x, Matrix y, int64_t first) const {
  for (const Piece& p : pieces_) {
    Gemm call{.a = x,
              .b = p.weight,
              .c = part(y, p).row_range(first, first + x.rows),
              .transpose_b = true};
    if (p.bias.data != nullptr) {
      call.epilogue = Epilogue::bias;
      call.bias = p.bias;
    }
    gemm(stream, call);
  }
}

void ColumnLinear::forward_gelu(Stream& stream, Matrix x, Matrix pre, Matrix y,
                                int64_t first) const {
  for (const Piece& p : pieces_)
    gemm(stream, {.a = x,
                  .b = p.weight,
                  .c = part(y, p).row_range(first, first + x.rows),
                  .transpose_b = true,
                  .epilogue = Epilogue::bias_gelu,
                  .bias = p.bias,
                  .pre_activation = part(pre, p).row_range(first, first + x.rows)});
}

void ColumnLinear::backward_input(Stream& stream, Matrix dy, Matrix dx) const {
  for (const Piece& p : pieces_)
    gemm(stream, {.a = part(dy, p), .b = p.weight, .c = dx, .beta = p.first == 0 ? 0.0f : 1.0f});
}

void ColumnLinear::backward_weight(Stream& stream, Matrix x, Matrix dy) const {
  for (const Piece& p : pieces_) {
    const Matrix d = part(dy, p);
    gemm(stream, {.a = d, .b = x, .c = p.d_weight, .transpose_a = true, .beta = 1});
    if (p.d_bias.data != nullptr) add_column_sums(stream, d, p.d_bias);
  }
}

RowLinear::RowLinear(const ParameterStore& store, const std::string& weight, bool bias) {
  const ParameterTable& table = store.table();
  weight_ = store.value(table.find(weight));
  d_weight_ = store.gradient(table.find(weight));
  if (!bias) return;
  bias_ = store.value(table.find(bias_of(weight)));
  d_bias_ = store.gradient(table.find(bias_of(weight)));
}

void RowLinear::forward(Stream& stream, Matrix x, Matrix partial) const {
  gemm(stream, {.a = x, .b = weight_, .c = partial});
}

void RowLinear::backward_input(Stream& stream, Matrix d_out, Matrix dx) const {
  gemm(stream, {.a = d_out, .b = weight_, .c = dx, .transpose_b = true});
}

void RowLinear::backward_weight(Stream& stream, Matrix x, Matrix d_out) const {
  gemm(stream, {.a = x, .b = d_out, .c = d_weight_, .transpose_a = true, .beta = 1});
}

void RowLinear::backward_bias(Stream& stream, Matrix d_out) const {
  if (d_bias_.data != nullptr) add_column_sums(stream, d_out, d_bias_);
}

}  // namespace trireme
