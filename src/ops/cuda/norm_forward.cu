// LayerNorm and RMSNorm, fused with the residual add before them: each element is read and written
// once.
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/norm.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

template <class T>
struct ForwardArguments {
  const T *residual, *delta, *delta_bias, *gain, *bias;  // delta, delta_bias and bias may be null
  T *out, *normalized;                                   // out may be null or `residual`
  int64_t rows, width;
  float epsilon;
  DropoutArguments dropout;
};

// x = residual + mask * (delta + delta_bias), rounded as stored: the backward pass sees just that.
template <class T, int V>
__device__ void residual_pack(const ForwardArguments<T>& a, const RowMask& mask, int64_t row,
                              int64_t column, float (&x)[V]) {
  const int64_t at = row * a.width + column;
  load(a.residual + at, x);
  if (a.delta != nullptr) {
    float change[V];
    load(a.delta + at, change);
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
  if (a.out != nullptr && (a.delta != nullptr || a.out != a.residual)) store(a.out + at, x);
}

template <NormKind kKind, class T, int V, int K>
__global__ void __launch_bounds__(norm_threads(K)) norm_forward_kernel(ForwardArguments<T> a) {
  __shared__ float shared[32];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= a.rows) return;  // whole warps only: a block of one row never leaves
  const RowMask mask = row_mask(a.dropout, row);
  float x[K][V] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int64_t column = pack_column<V>(k);
    if (column < a.width) residual_pack<T, V>(a, mask, row, column, x[k]);
  }
  const RowStatistics s = row_statistics<kKind>(x, a.width, a.epsilon, shared);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int64_t column = pack_column<V>(k);
    if (column >= a.width) continue;
    float gain[V], bias[V] = {};
    load(a.gain + column, gain);
    if (a.bias != nullptr) load(a.bias + column, bias);
#pragma unroll
    for (int j = 0; j < V; ++j) x[k][j] = (x[k][j] - s.mean) * s.inverse * gain[j] + bias[j];
    store(a.normalized + row * a.width + column, x[k]);
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
                              width,
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
  with_row_layout(call.residual_in.dtype, is_wide, width, "norm_forward",
                  [&]<class T, int V, int K>(const RowLayout& layout) {
                    launch<T, V, K>(stream, call, layout);
                  });
}

}  // namespace trireme::inline TRIREME_BACKEND
