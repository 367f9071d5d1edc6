// Gradient of LayerNorm and RMSNorm in one pass over the rows.
//
// A fixed grid of blocks walks the rows; each keeps its sums for gain and bias in registers and
// leaves them in work memory, where a second kernel adds them up in block order: no atomics, the
// same bits in every run.
#include "ops/cuda/norm.cuh"
#include "ops/cuda/partial_sums.cuh"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

template <class T>
struct BackwardArguments {
  const T *x, *gain, *d;
  T* dx;
  float* partial;  // [blocks, 2, width]: gain, then bias
  int64_t rows, width;
  float epsilon;
};

// Adds the parameter gradients of the rows of a block (one after the other) and writes them out.
template <int V, int K>
__device__ void leave_partials(float (&d_gain)[K][V], float (&d_bias)[K][V], int64_t width,
                               float* combined, float* partial) {
  for (unsigned y = 0; y < blockDim.y; ++y) {
    if (blockDim.y > 1) __syncthreads();
    if (threadIdx.y != y) continue;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int64_t column = pack_column<V>(k);
      if (column >= width) continue;
      float* gain = (y + 1 == blockDim.y ? partial : combined) + column;
      float* bias = gain + width;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float before_gain = y == 0 ? 0.0f : combined[column + j];
        const float before_bias = y == 0 ? 0.0f : combined[width + column + j];
        gain[j] = before_gain + d_gain[k][j];
        bias[j] = before_bias + d_bias[k][j];
      }
    }
  }
}

// dx += inverse * (g - mean(g) - xhat * mean(g xhat)), g = d * gain; rms_norm has no mean(g).
template <NormKind kKind, class T, int V, int K>
__global__ void __launch_bounds__(norm_threads(K)) norm_backward_kernel(BackwardArguments<T> a) {
  __shared__ float shared[32];
  extern __shared__ float combined[];
  float d_gain[K][V] = {}, d_bias[K][V] = {};
  const float scale = 1.0f / static_cast<float>(a.width);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < a.rows;
       row += step) {
    const int64_t start = row * a.width;
    float x[K][V] = {}, d[K][V] = {}, dx[K][V] = {};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int64_t column = pack_column<V>(k);
      if (column >= a.width) continue;
      load(a.x + start + column, x[k]);
      load(a.d + start + column, d[k]);
      load(a.dx + start + column, dx[k]);
    }
    const RowStatistics s = row_statistics<kKind>(x, a.width, a.epsilon, shared);
    float sum = 0, product = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int64_t column = pack_column<V>(k);
      if (column >= a.width) continue;
      float gain[V];
      load(a.gain + column, gain);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float xhat = (x[k][j] - s.mean) * s.inverse;
        d_gain[k][j] += d[k][j] * xhat;
        if constexpr (kKind == NormKind::layer_norm) d_bias[k][j] += d[k][j];
        d[k][j] *= gain[j];
        x[k][j] = xhat;
        sum += d[k][j];
        product += d[k][j] * xhat;
      }
    }
    const float g_mean = kKind == NormKind::layer_norm ? row_sum(sum, shared) * scale : 0.0f;
    const float product_mean = row_sum(product, shared) * scale;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int64_t column = pack_column<V>(k);
      if (column >= a.width) continue;
#pragma unroll
      for (int j = 0; j < V; ++j)
        dx[k][j] += s.inverse * (d[k][j] - g_mean - x[k][j] * product_mean);
      store(a.dx + start + column, dx[k]);
    }
  }
  if (a.partial != nullptr)
    leave_partials<V, K>(d_gain, d_bias, a.width, combined, a.partial + blockIdx.x * 2 * a.width);
}

void check(const NormBackward& call, int64_t width) {
  const DType type = call.x.dtype;
  require_vector(call.gain, width, type, "norm_backward: gain");
  require_like(call.d_normalized, call.x, "norm_backward: d_normalized");
  require_like(call.d_residual, call.x, "norm_backward: d_residual");
  if (!call.d_gain.empty()) require_vector(call.d_gain, width, DType::f32, "norm_backward: d_gain");
  if (!call.d_bias.empty()) require_vector(call.d_bias, width, DType::f32, "norm_backward: d_bias");
  require(call.kind == NormKind::layer_norm || call.d_bias.empty(), ExitCode::internal,
          "norm_backward: rms_norm has no bias");
  require(call.x.elements() % width == 0, ExitCode::internal,
          "norm_backward: x is {}, not rows of {}", call.x.shape.text(), width);
}

// Blocks that fill the device, as far as rows and work memory go.
int64_t walking_blocks(Stream& stream, int64_t rows, int64_t width, const RowLayout& layout) {
  const int64_t per_multiprocessor =
      std::max<int64_t>(1, 768 / static_cast<int64_t>(layout.block.x * layout.block.y));
  const int64_t fits = static_cast<int64_t>(kWorkBytes / sizeof(float)) / (2 * width);
  return std::max<int64_t>(1, std::min({per_multiprocessor * stream.state().multiprocessors,
                                        ceil_div(rows, layout.block.y), fits}));
}

template <class T, int V, int K>
void launch(Stream& stream, const NormBackward& call, const RowLayout& layout) {
  const int64_t width = call.gain.elements();
  const bool has_parameters = !call.d_gain.empty() || !call.d_bias.empty();
  float* partial = reinterpret_cast<float*>(work_memory(stream));
  const BackwardArguments<T> a{elements<T>(call.x),
                               elements<T>(call.gain),
                               elements<T>(call.d_normalized),
                               elements<T>(call.d_residual),
                               has_parameters ? partial : nullptr,
                               call.x.elements() / width,
                               width,
                               call.epsilon};
  const int64_t blocks = walking_blocks(stream, a.rows, width, layout);
  const size_t shared = layout.block.y > 1 ? static_cast<size_t>(2 * width) * sizeof(float) : 0;
  const auto grid = static_cast<unsigned>(blocks);
  if (call.kind == NormKind::layer_norm)
    norm_backward_kernel<NormKind::layer_norm, T, V, K>
        <<<grid, layout.block, shared, native(stream)>>>(a);
  else
    norm_backward_kernel<NormKind::rms_norm, T, V, K>
        <<<grid, layout.block, shared, native(stream)>>>(a);
  check_launch("norm_backward");
  if (!call.d_gain.empty())
    add_partials(stream, partial, blocks, 2 * width, width, elements<float>(call.d_gain));
  if (!call.d_bias.empty())
    add_partials(stream, partial + width, blocks, 2 * width, width, elements<float>(call.d_bias));
}

}  // namespace

void norm_backward(Stream& stream, const NormBackward& call) {
  require(!call.gain.empty(), ExitCode::internal, "norm_backward: no gain");
  const int64_t width = call.gain.elements();
  check(call, width);
  if (call.x.empty()) return;
  const bool is_wide =
      wide({as_row(call.gain), as_row(call.x), as_row(call.d_normalized), as_row(call.d_residual)});
  with_row_layout(call.x.dtype, is_wide, width, "norm_backward",
                  [&]<class T, int V, int K>(const RowLayout& layout) {
                    launch<T, V, K>(stream, call, layout);
                  });
}

}  // namespace trireme::inline TRIREME_BACKEND
