// Sums over rows in two stages without atomics: blocks leave partial rows in work memory, a second
// kernel adds them up in order.
#include "ops/cuda/partial_sums.cuh"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kGroups = 8;          // threads that share a column in the first stage
constexpr int kPartialGroups = 16;  // and in the second

// Block (x, y): columns of 32 threads of V, rows y * kGroups + own, strided by the grid.
template <class T, int V>
__global__ void __launch_bounds__(32 * kGroups)
    column_sums_kernel(const T* x, int64_t stride, int64_t rows, int64_t cols, float* partial) {
  __shared__ float shared[kGroups][32 * V];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x) * V;
  float sum[V] = {};
  if (column < cols) {
    const int64_t step = static_cast<int64_t>(gridDim.y) * kGroups;
#pragma unroll 4
    for (int64_t r = static_cast<int64_t>(blockIdx.y) * kGroups + threadIdx.y; r < rows;
         r += step) {
      float value[V];
      load(x + r * stride + column, value);
#pragma unroll
      for (int j = 0; j < V; ++j) sum[j] += value[j];
    }
  }
#pragma unroll
  for (int j = 0; j < V; ++j) shared[threadIdx.y][threadIdx.x + 32 * j] = sum[j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y * 32 + threadIdx.x); i < 32 * V; i += 32 * kGroups) {
    float total = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) total += shared[g][i];
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * 32 + i % 32) * V + i / 32;
    if (at < cols) partial[blockIdx.y * cols + at] = total;
  }
}

__global__ void __launch_bounds__(32 * kPartialGroups)
    add_partials_kernel(const float* partial, int64_t count, int64_t stride, int64_t width,
                        float* sum) {
  __shared__ float shared[kPartialGroups][33];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float own = 0;
  if (column < width) {
#pragma unroll 4
    for (int64_t b = threadIdx.y; b < count; b += kPartialGroups)
      own += partial[b * stride + column];
  }
  shared[threadIdx.y][threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  float total = 0;
#pragma unroll
  for (int g = 0; g < kPartialGroups; ++g) total += shared[g][threadIdx.x];
  sum[column] += total;
}

}  // namespace

void add_partials(Stream& stream, const float* partial, int64_t count, int64_t stride,
                  int64_t width, float* sum) {
  add_partials_kernel<<<blocks_for(width, 32), dim3(32, kPartialGroups), 0, native(stream)>>>(
      partial, count, stride, width, sum);
  check_launch("adding partial sums");
}

void add_column_sums(Stream& stream, Matrix x, TensorView sum) {
  require_view(sum, {x.cols}, DType::f32, "add_column_sums: sum");
  if (x.empty()) return;
  float* partial = reinterpret_cast<float*>(work_memory(stream));
  with_type(x.dtype, wide(x), "add_column_sums", [&]<class T, int V>() {
    const int64_t across = ceil_div(x.cols, 32 * V);
    const int64_t wanted = ceil_div(4 * stream.state().multiprocessors, across);
    const int64_t fits = static_cast<int64_t>(kWorkBytes / sizeof(float)) / x.cols;
    require(fits > 0, ExitCode::internal, "add_column_sums: {} columns are too many", x.cols);
    const int64_t splits =
        std::max<int64_t>(1, std::min({wanted, fits, ceil_div(x.rows, 4 * kGroups)}));
    const dim3 grid(blocks_for(across, 1), static_cast<unsigned>(splits));
    column_sums_kernel<T, V><<<grid, dim3(32, kGroups), 0, native(stream)>>>(
        elements<T>(x), x.stride, x.rows, x.cols, partial);
    check_launch("add_column_sums");
    add_partials(stream, partial, splits, x.cols, x.cols, elements<float>(sum));
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
