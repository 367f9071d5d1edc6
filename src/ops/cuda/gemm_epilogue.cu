// Kernels behind a matrix product, over strided matrices: a block for a row, or for a piece of a
// wide one.
#include "ops/cuda/gemm_epilogue.hpp"

#include "ops/cuda/activation.cuh"
#include "ops/cuda/kernel.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 256;

__device__ int64_t own_column(int v) {
  return (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * v;
}

template <class T, int V>
__global__ void scale_kernel(T* c, int64_t stride, int64_t cols, float beta) {
  const int64_t column = own_column(V);
  if (column >= cols) return;
  T* at = c + blockIdx.x * stride + column;
  float value[V] = {};
  if (beta != 0) load(at, value);
#pragma unroll
  for (int j = 0; j < V; ++j) value[j] *= beta;
  store(at, value);
}

template <class T, class Bias, int V>
__global__ void bias_kernel(T* c, int64_t stride, int64_t cols, const Bias* bias) {
  const int64_t column = own_column(V);
  if (column >= cols) return;
  T* at = c + blockIdx.x * stride + column;
  float value[V], b[V];
  load(at, value);
  load(bias + column, b);
#pragma unroll
  for (int j = 0; j < V; ++j) value[j] += b[j];
  store(at, value);
}

template <class T, int V>
__global__ void gelu_kernel(const T* pre, int64_t pre_stride, T* c, int64_t stride, int64_t cols) {
  const int64_t column = own_column(V);
  if (column >= cols) return;
  float value[V];
  load(pre + blockIdx.x * pre_stride + column, value);
#pragma unroll
  for (int j = 0; j < V; ++j) value[j] = gelu(value[j]);
  store(c + blockIdx.x * stride + column, value);
}

struct Launch {
  dim3 grid;
  unsigned threads;
};
Launch launch_for(const Matrix& c, int v) {
  const int64_t packs = ceil_div(c.cols, v);
  const unsigned threads = threads_for(packs, kThreads);
  return {dim3(blocks_for(c.rows, 1), blocks_for(packs, threads)), threads};
}

}  // namespace

void scale_matrix(Stream& stream, const Matrix& c, float beta) {
  if (beta == 1) return;
  with_type(c.dtype, wide(c), "gemm: scaling", [&]<class T, int V>() {
    const Launch l = launch_for(c, V);
    scale_kernel<T, V>
        <<<l.grid, l.threads, 0, native(stream)>>>(elements<T>(c), c.stride, c.cols, beta);
    check_launch("gemm: scaling");
  });
}

void add_bias(Stream& stream, const Matrix& c, const TensorView& bias) {
  const bool is_wide = wide(c) && wide(as_row(bias)) && bias.dtype == c.dtype;
  with_type(c.dtype, is_wide, "gemm: bias", [&]<class T, int V>() {
    const Launch l = launch_for(c, V);
    if (bias.dtype == DType::bf16)
      bias_kernel<T, bf16, V><<<l.grid, l.threads, 0, native(stream)>>>(
          elements<T>(c), c.stride, c.cols, elements<bf16>(bias));
    else
      bias_kernel<T, float, V><<<l.grid, l.threads, 0, native(stream)>>>(
          elements<T>(c), c.stride, c.cols, elements<float>(bias));
    check_launch("gemm: bias");
  });
}

void gelu_matrix(Stream& stream, const Matrix& pre, const Matrix& c) {
  with_type(c.dtype, wide({pre, c}), "gemm: gelu", [&]<class T, int V>() {
    const Launch l = launch_for(c, V);
    gelu_kernel<T, V><<<l.grid, l.threads, 0, native(stream)>>>(elements<T>(pre), pre.stride,
                                                                elements<T>(c), c.stride, c.cols);
    check_launch("gemm: gelu");
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
