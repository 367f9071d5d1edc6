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

// Threads that a multiprocessor gives to blocks that hold K packs a thread: what their registers
// allow.
constexpr int walking_threads(int packs, int v) {
  return packs == 1 ? 768 : packs == 2 ? 512 : packs <= 4 ? 384 : v > 1 ? 512 : 1024;
}

// Blocks that fill the device, as far as there are rows.
int64_t walking_blocks(Stream& stream, int64_t rows, int v, const RowLayout& layout) {
  const int64_t of_block = layout.block.x * layout.block.y;
  const int64_t together = std::max<int64_t>(1, walking_threads(layout.packs, v) / of_block);
  return std::min(together * stream.state().multiprocessors, ceil_div(rows, layout.block.y));
}

template <class T>
struct BackwardArguments {
  const T *x, *gain, *d;
  T* dx;
  float* partial;  // [blocks, 2, width]: gain, then bias
  int64_t rows;
  int width;
  float epsilon;
};

// Adds the parameter gradients of the rows of a block (one after the other) and writes them out.
template <int V, int K>
__device__ void leave_partials(float (&d_gain)[K][V], float (&d_bias)[K][V], int width,
                               float* combined, float* partial) {
  for (unsigned y = 0; y < blockDim.y; ++y) {
    if (blockDim.y > 1) __syncthreads();
    if (threadIdx.y != y) continue;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = pack_column<V>(k);
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

// The packs of one row as they were read.
template <class T, int V, int K>
struct BackwardRow {
  Pack<T, V> x[K], d[K], dx[K];

  __device__ void read(const BackwardArguments<T>& a, int64_t row) {
    if (row >= a.rows) return;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = pack_column<V>(k);
      if (column >= a.width) continue;
      x[k] = load_pack<V>(a.x + row * a.width + column);
      d[k] = load_pack<V>(a.d + row * a.width + column);
      dx[k] = load_pack<V>(a.dx + row * a.width + column);
    }
  }
  __device__ void forget(Pack<T, V> (&gain)[K]) {
    convert_again(x);
    convert_again(d);
    convert_again(gain);
  }
};

// What the gradient of a row needs: with g = d * gain and xhat = (x - mean) * inverse, the means
// over the row.
struct RowMeans {
  float mean = 0, inverse = 0;         // mean is 0 for rms_norm
  float g_mean = 0, product_mean = 0;  // of g (0 for rms_norm) and of g * xhat
};

// Two rounds of sums: the second one is about the mean, so that nothing cancels.
template <NormKind kKind, class T, int V, int K>
__device__ RowMeans row_means(const BackwardArguments<T>& a, BackwardRow<T, V, K>& row,
                              Pack<T, V> (&gain)[K], RowSums& row_sums) {
  RowMeans m;
  const float scale = 1.0f / static_cast<float>(a.width);
  if constexpr (kKind == NormKind::layer_norm) {
    float sum[2] = {};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (pack_column<V>(k) >= a.width) continue;
      float x[V], d[V], w[V];
      unpack(row.x[k], x);
      unpack(row.d[k], d);
      unpack(gain[k], w);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        sum[0] += x[j];
        sum[1] += d[j] * w[j];
      }
    }
    row_sums(sum);
    m.mean = sum[0] * scale;
    m.g_mean = sum[1] * scale;
    row.forget(gain);
  }
  float sum[2] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (pack_column<V>(k) >= a.width) continue;
    float x[V], d[V], w[V];
    unpack(row.x[k], x);
    unpack(row.d[k], d);
    unpack(gain[k], w);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float centred = x[j] - m.mean;
      sum[0] += centred * centred;
      sum[1] += d[j] * w[j] * centred;
    }
  }
  row_sums(sum);
  m.inverse = 1.0f / sqrtf(sum[0] * scale + a.epsilon);
  m.product_mean = sum[1] * m.inverse * scale;
  row.forget(gain);
  return m;
}

// dx += inverse * (g - mean(g) - xhat * mean(g xhat)); rms_norm has no mean(g).
template <NormKind kKind, class T, int V, int K>
__global__ void __launch_bounds__(walking_threads(K, V))
    norm_backward_kernel(BackwardArguments<T> a) {
  constexpr bool kReadsAhead = K <= 3;
  __shared__ RowSums::Memory shared;
  extern __shared__ float combined[];
  RowSums row_sums(shared);
  float d_gain[K][V] = {}, d_bias[K][V] = {};
  Pack<T, V> gain[K];
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (pack_column<V>(k) < a.width) gain[k] = load_pack<V>(a.gain + pack_column<V>(k));
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  BackwardRow<T, V, K> row, next;
  if constexpr (kReadsAhead) next.read(a, at);
  for (; at < a.rows; at += step) {
    if constexpr (kReadsAhead) {
      row = next;
      next.read(a, at + step);
    } else {
      row.read(a, at);
    }
    const RowMeans m = row_means<kKind>(a, row, gain, row_sums);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int column = pack_column<V>(k);
      if (column >= a.width) continue;
      float x[V], d[V], w[V], out[V];
      unpack(row.x[k], x);
      unpack(row.d[k], d);
      unpack(gain[k], w);
      unpack(row.dx[k], out);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float xhat = (x[j] - m.mean) * m.inverse;
        d_gain[k][j] += d[j] * xhat;
        if constexpr (kKind == NormKind::layer_norm) d_bias[k][j] += d[j];
        out[j] += m.inverse * (d[j] * w[j] - m.g_mean - xhat * m.product_mean);
      }
      store(a.dx + at * a.width + column, out);
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
                               static_cast<int>(width),
                               call.epsilon};
  const int64_t fits = static_cast<int64_t>(kWorkBytes / sizeof(float)) / (2 * width);
  const int64_t blocks = std::min(walking_blocks(stream, a.rows, V, layout), fits);
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
  // One pack a thread leaves too little between two barriers.
  const auto most = [](int packs, int v) { return packs == 1 ? 0 : walking_threads(packs, v); };
  with_row_layout(call.x.dtype, is_wide, width, "norm_backward", most,
                  [&]<class T, int V, int K>(const RowLayout& layout) {
                    launch<T, V, K>(stream, call, layout);
                  });
}

}  // namespace trireme::inline TRIREME_BACKEND
