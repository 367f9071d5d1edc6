// Private to the model: linear layers split over tp, as separate halves.
#pragma once

#include <string>
#include <vector>

#include "trireme/model/parameter_store.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {

// y [N, out/tp] = x [N, in] W^T + b, with W stored [out, in] and split by rows: one or more weights
// whose outputs lie side by side. Weights that are packed in memory are one product.
class ColumnLinear {
 public:
  // How the outputs of several weights share y's memory: [N, sum of widths], or one dense matrix
  // [N, width] behind the other.
  enum class Outputs : uint8_t { side_by_side, one_by_one };
  ColumnLinear() = default;
  // Names of the weights in the order of their output columns; biases by replacing ".weight".
  ColumnLinear(const ParameterStore& store, const std::vector<std::string>& weights, bool bias,
               Outputs outputs = Outputs::side_by_side);

  // x may be some of the rows alone: those from `first` on; y is always whole.
  void forward(Stream& stream, Matrix x, Matrix y, int64_t first = 0) const;
  bool has_bias() const { return !pieces_.empty() && pieces_[0].bias.data != nullptr; }
  // y = gelu(pre), pre = x W^T + b; needs biases.
  void forward_gelu(Stream& stream, Matrix x, Matrix pre, Matrix y, int64_t first = 0) const;
  // dx [N, in] = dy W: this rank's part of the sum over tp.
  void backward_input(Stream& stream, Matrix dy, Matrix dx) const;
  void backward_weight(Stream& stream, Matrix x, Matrix dy) const;

 private:
  struct Piece {
    TensorView weight, d_weight, bias, d_bias;
    int64_t first = 0;  // output column
    int64_t last() const { return first + weight.shape[0]; }
  };
  // A piece's part of y, as `outputs_` says.
  Matrix part(const Matrix& y, const Piece& piece) const;
  std::vector<Piece> pieces_;
  Outputs outputs_ = Outputs::side_by_side;
};

// partial [N, out] = x [N, in/tp] W, with W stored [in, out] and split by rows; the sum over tp and
// the bias come after it.
class RowLinear {
 public:
  RowLinear() = default;
  RowLinear(const ParameterStore& store, const std::string& weight, bool bias);

  void forward(Stream& stream, Matrix x, Matrix partial) const;
  void backward_input(Stream& stream, Matrix d_out, Matrix dx) const;
  void backward_weight(Stream& stream, Matrix x, Matrix d_out) const;
  // Sum over the rows held here of the gradient behind the reduction.
  void backward_bias(Stream& stream, Matrix d_out) const;
  TensorView bias() const { return bias_; }  // [out]; empty without biases

 private:
  TensorView weight_, d_weight_, bias_, d_bias_;
};

}  // namespace trireme
