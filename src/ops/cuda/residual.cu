// residual + dropout(delta + bias), and dropout alone: a block for a row, or for a piece of a wide
// one.
#include "ops/cuda/dropout.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 256;

template <class T, int V>
__global__ void residual_add_kernel(const T* residual, const T* delta, const T* bias, T* out,
                                    int64_t width, DropoutArguments dropout) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (column >= width) return;
  const int64_t i = blockIdx.x * width + column;
  float change[V], sum[V];
  load(delta + i, change);
  if (bias != nullptr) {
    float b[V];
    load(bias + column, b);
#pragma unroll
    for (int j = 0; j < V; ++j) change[j] += b[j];
  }
  apply_mask(dropout, row_mask(dropout, blockIdx.x), column, change);
  load(residual + i, sum);
#pragma unroll
  for (int j = 0; j < V; ++j) sum[j] += change[j];
  store(out + i, sum);
}

template <class T, int V>
__global__ void dropout_kernel(const T* x, T* out, int64_t width, DropoutArguments dropout) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (column >= width) return;
  const int64_t i = blockIdx.x * width + column;
  float value[V];
  load(x + i, value);
  apply_mask(dropout, row_mask(dropout, blockIdx.x), column, value);
  store(out + i, value);
}

}  // namespace

void residual_add(Stream& stream, const ResidualAdd& call) {
  const Matrix rows(call.residual);
  require_like(call.delta, call.residual, "residual_add: delta");
  require_like(call.out, call.residual, "residual_add: out");
  if (!call.delta_bias.empty())
    require_vector(call.delta_bias, rows.cols, call.residual.dtype, "residual_add: delta_bias");
  if (rows.empty()) return;
  const bool is_wide = wide({rows, Matrix(call.delta), Matrix(call.out), as_row(call.delta_bias)});
  const DropoutArguments dropout = dropout_arguments(call.dropout);
  with_type(rows.dtype, is_wide, "residual_add", [&]<class T, int V>() {
    const unsigned threads = threads_for(ceil_div(rows.cols, V), kThreads);
    const dim3 grid(blocks_for(rows.rows, 1), blocks_for(ceil_div(rows.cols, V), threads));
    residual_add_kernel<T, V><<<grid, threads, 0, native(stream)>>>(
        elements<T>(call.residual), elements<T>(call.delta),
        call.delta_bias.empty() ? nullptr : elements<T>(call.delta_bias), elements<T>(call.out),
        rows.cols, dropout);
    check_launch("residual_add");
  });
}

void dropout(Stream& stream, const Dropout& call) {
  const Matrix rows(call.x);
  require_like(call.out, call.x, "dropout: out");
  if (rows.empty()) return;
  const DropoutArguments arguments = dropout_arguments(call.site);
  with_type(rows.dtype, wide({rows, Matrix(call.out)}), "dropout", [&]<class T, int V>() {
    const unsigned threads = threads_for(ceil_div(rows.cols, V), kThreads);
    const dim3 grid(blocks_for(rows.rows, 1), blocks_for(ceil_div(rows.cols, V), threads));
    dropout_kernel<T, V><<<grid, threads, 0, native(stream)>>>(
        elements<T>(call.x), elements<T>(call.out), rows.cols, arguments);
    check_launch("dropout");
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
