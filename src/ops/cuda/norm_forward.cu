// LayerNorm and RMSNorm, fused with the residual add before them: each element is read and written
// once.
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/norm.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Most threads of a block. Many blocks share a multiprocessor, so that some load while others
// compute.
constexpr int forward_threads(int packs, int v) {
  return v == 1 ? 1024 : packs <= 4 ? 256 : 512;
}

template <class T>
struct ForwardArguments {
  const T *residual, *delta, *delta_bias, *gain, *bias;  // delta, delta_bias and bias may be null
  T *out, *normalized;                                   // out may be null or `residual`
  int64_t rows;
  int width;
  float epsilon;
  DropoutArguments dropout;
};

// x = residual + mask * (delta + delta_bias), rounded as stored: the backward pass sees just that.
template <class T, int V>
__device__ void add_delta(const ForwardArguments<T>& a, const RowMask& mask,
                          const Pack<T, V>& delta, int column, float (&x)[V]) {
  float change[V];
  unpack(delta, change);
  if (a.delta_bias != nullptr) {
    float b[V];
    load(a.delta_bias + column, b);
#pragma unroll
    for (int j = 0; j < V; ++j) change[j] += b[j];
  }
  apply_mask(a.dropout, mask, column, change);
#pragma unroll
  for (int j = 0; j < V; ++j) x[j] = to_float(from_float<T>(x[j] + change[j]));
}

struct RowStatistics {
  float mean = 0;     // 0 for rms_norm
  float inverse = 0;  // 1 / sqrt(variance + epsilon), or of the mean square
};

// Columns at or beyond `width` hold 0 in x and are left out.
template <NormKind kKind, int V, int K>
__device__ RowStatistics row_statistics(const float (&x)[K][V], int width, float epsilon,
                                        RowSums& row_sums) {
  RowStatistics row;
  const float scale = 1.0f / static_cast<float>(width);
  if constexpr (kKind == NormKind::layer_norm) {
    float sum[1] = {};
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int j = 0; j < V; ++j) sum[0] += x[k][j];
    row_sums(sum);
    row.mean = sum[0] * scale;
  }
  float square[1] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (pack_column<V>(k) >= width) continue;
#pragma unroll
    for (int j = 0; j < V; ++j) square[0] += (x[k][j] - row.mean) * (x[k][j] - row.mean);
  }
  row_sums(square);
  row.inverse = 1.0f / sqrtf(square[0] * scale + epsilon);
  return row;
}

template <NormKind kKind, class T, int V, int K>
__global__ void __launch_bounds__(forward_threads(K, V))
    norm_forward_kernel(ForwardArguments<T> a) {
  __shared__ RowSums::Memory shared;
  RowSums row_sums(shared);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= a.rows) return;  // whole warps only: a block of one row never leaves
  const int64_t start = row * a.width;
  Pack<T, V> residual[K], delta[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = pack_column<V>(k);
    if (column >= a.width) continue;
    residual[k] = load_pack<V>(a.residual + start + column);
    if (a.delta != nullptr) delta[k] = load_pack<V>(a.delta + start + column);
  }
  const RowMask mask = row_mask(a.dropout, row);
  float x[K][V] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = pack_column<V>(k);
    if (column >= a.width) continue;
    unpack(residual[k], x[k]);
    if (a.delta != nullptr) add_delta<T, V>(a, mask, delta[k], column, x[k]);
    if (a.out != nullptr && (a.delta != nullptr || a.out != a.residual))
      store(a.out + start + column, x[k]);
  }
  const RowStatistics s = row_statistics<kKind>(x, a.width, a.epsilon, row_sums);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = pack_column<V>(k);
    if (column >= a.width) continue;
    float gain[V], bias[V] = {};
    load(a.gain + column, gain);
    if (a.bias != nullptr) load(a.bias + column, bias);
#pragma unroll
    for (int j = 0; j < V; ++j) x[k][j] = (x[k][j] - s.mean) * s.inverse * gain[j] + bias[j];
    store(a.normalized + start + column, x[k]);
  }
}

void check(const NormForward& call, int64_t width) {
  const DType type = call.residual_in.dtype;
  require_vector(call.gain, width, type, "norm_forward: gain");
  if (!call.bias.empty()) require_vector(call.bias, width, type, "norm_forward: bias");
  if (!call.delta_bias.empty())
    require_vector(call.delta_bias, width, type, "norm_forward: delta_bias");
  require(call.kind == NormKind::layer_norm || call.bias.empty(), ExitCode::internal,
          "norm_forward: rms_norm has no bias");
  require_like(call.normalized, call.residual_in, "norm_forward: normalized");
  if (!call.delta.empty()) require_like(call.delta, call.residual_in, "norm_forward: delta");
  if (!call.delta.empty() || !call.residual_out.empty())
    require_like(call.residual_out, call.residual_in, "norm_forward: residual_out");
  require(call.residual_in.elements() % width == 0, ExitCode::internal,
          "norm_forward: residual_in is {}, not rows of {}", call.residual_in.shape.text(), width);
}

template <class T>
const T* optional(const TensorView& view) {
  return view.empty() ? nullptr : elements<T>(view);
}

template <class T, int V, int K>
void launch(Stream& stream, const NormForward& call, const RowLayout& layout) {
  const int64_t width = call.gain.elements();
  const ForwardArguments<T> a{elements<T>(call.residual_in),
                              optional<T>(call.delta),
                              optional<T>(call.delta_bias),
                              elements<T>(call.gain),
                              optional<T>(call.bias),
                              call.residual_out.empty() ? nullptr : elements<T>(call.residual_out),
                              elements<T>(call.normalized),
                              call.residual_in.elements() / width,
                              static_cast<int>(width),
                              call.epsilon,
                              dropout_arguments(call.dropout)};
  const unsigned blocks = blocks_for(a.rows, layout.block.y);
  if (call.kind == NormKind::layer_norm)
    norm_forward_kernel<NormKind::layer_norm, T, V, K>
        <<<blocks, layout.block, 0, native(stream)>>>(a);
  else
    norm_forward_kernel<NormKind::rms_norm, T, V, K>
        <<<blocks, layout.block, 0, native(stream)>>>(a);
  check_launch("norm_forward");
}

}  // namespace

void norm_forward(Stream& stream, const NormForward& call) {
  require(!call.gain.empty(), ExitCode::internal, "norm_forward: no gain");
  const int64_t width = call.gain.elements();
  check(call, width);
  if (call.residual_in.empty()) return;
  const bool is_wide =
      wide({as_row(call.gain), as_row(call.bias), as_row(call.delta_bias), as_row(call.residual_in),
            as_row(call.delta), as_row(call.residual_out), as_row(call.normalized)});
  with_row_layout(call.residual_in.dtype, is_wide, width, "norm_forward", forward_threads,
                  [&]<class T, int V, int K>(const RowLayout& layout) {
                    launch<T, V, K>(stream, call, layout);
                  });
}

}  // namespace trireme::inline TRIREME_BACKEND
