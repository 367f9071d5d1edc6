// AdamW over the segments of a flat buffer in one launch, and the squared gradient norm in two
// stages.
#include "ops/cuda/kernel.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;                       // elements of a thread: 16 bytes of f32
constexpr int kNormBlocks = 1024;              // first stage of the norm
constexpr int64_t kNormPiece = kThreads * 16;  // fewer elements than this make one block

template <class T>
struct AdamWArguments {
  const float* gradient;
  float *master, *m, *v;
  T* value;
  const AdamWSegment* segments;
  int segment_count;
  int64_t first, last;  // elements covered by the launch
  float beta1, beta2, epsilon;
  const StepState* state;
};

struct AdamWFactors {
  float scale, rate, correction1, correction2;
};

template <class T, int V>
__device__ void update(const AdamWArguments<T>& a, const AdamWFactors& f, float decay, int64_t i) {
  float g[V], w[V], m[V], v[V];
  load(a.gradient + i, g);
  load(a.master + i, w);
  load(a.m + i, m);
  load(a.v + i, v);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float scaled = g[j] * f.scale;
    m[j] = a.beta1 * m[j] + (1.0f - a.beta1) * scaled;
    v[j] = a.beta2 * v[j] + (1.0f - a.beta2) * (scaled * scaled);
    const float step = m[j] / f.correction1 / (sqrtf(v[j] / f.correction2) + a.epsilon);
    w[j] -= f.rate * (step + decay * w[j]);
  }
  store(a.m + i, m);
  store(a.v + i, v);
  store(a.master + i, w);
  store(a.value + i, w);
}

// Index of the first segment that ends behind `at`; segments are in order.
__device__ int first_segment_behind(const AdamWSegment* segments, int count, int64_t at) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (segments[middle].first + segments[middle].count > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// A thread owns kPack elements; they are updated at once where one segment holds them all.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamWArguments<T> a) {
  if (a.state->skip != 0) return;
  __shared__ int start;
  const int64_t block = a.first + static_cast<int64_t>(blockIdx.x) * kThreads * kPack;
  if (threadIdx.x == 0) start = first_segment_behind(a.segments, a.segment_count, block);
  __syncthreads();
  const AdamWFactors f{a.state->gradient_scale, a.state->learning_rate, a.state->correction1,
                       a.state->correction2};
  const int64_t first = block + static_cast<int64_t>(threadIdx.x) * kPack;
  const int64_t last = min(first + kPack, a.last);
  for (int s = start; s < a.segment_count; ++s) {
    const AdamWSegment segment = a.segments[s];
    const int64_t end = segment.first + segment.count;
    if (segment.first >= last) return;
    if (end <= first) continue;
    if constexpr (V == kPack) {
      if (segment.first <= first && first + kPack <= end) {
        update<T, kPack>(a, f, segment.weight_decay, first);
        return;
      }
    }
    for (int64_t i = max(first, segment.first); i < min(last, end); ++i)
      update<T, 1>(a, f, segment.weight_decay, i);
  }
}

void check_adamw(const AdamW& call) {
  const int64_t n = call.gradient.elements();
  require(call.state != nullptr, ExitCode::internal, "adamw: no step state");
  require_vector(call.gradient, n, DType::f32, "adamw: gradient");
  require_vector(call.master, n, DType::f32, "adamw: master");
  require_vector(call.m, n, DType::f32, "adamw: m");
  require_vector(call.v, n, DType::f32, "adamw: v");
  require_vector(call.value, n, call.value.dtype, "adamw: value");
  require(call.segments.empty() || call.device_segments != nullptr, ExitCode::internal,
          "adamw: device_segments must hold the {} segments", call.segments.size());
  int64_t reached = 0;
  for (const AdamWSegment& s : call.segments) {
    require(s.first >= reached && s.count >= 0 && s.first <= n - s.count, ExitCode::internal,
            "adamw: segment of {} elements at {} in a buffer of {}, behind one that ends at {}",
            s.count, s.first, n, reached);
    reached = s.first + s.count;
  }
}

// Partial sums of squares, f64 over f32 products of a pack; block b owns packs b, b + grid, ...
template <int V>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const float* x, int64_t count, double* partial) {
  __shared__ double shared[32];
  double sum = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * V;
#pragma unroll 4
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V; i < count;
       i += step) {
    float value[V] = {};
    if (i + V <= count) {
      load(x + i, value);
    } else {
      for (int j = 0; i + j < count; ++j) value[j] = x[i + j];
    }
    float squares = 0;
#pragma unroll
    for (int j = 0; j < V; ++j) squares += value[j] * value[j];
    sum += squares;
  }
  sum = block_reduce(sum, SumOf{}, shared, 0.0);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_squares_kernel(const double* partial, int blocks, StepState* state) {
  __shared__ double shared[32];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kThreads) sum += partial[i];
  sum = block_reduce(sum, SumOf{}, shared, 0.0);
  if (threadIdx.x == 0) state->sums[2] = static_cast<float>(state->sums[2] + sum);
}

}  // namespace

void adamw(Stream& stream, const AdamW& call) {
  check_adamw(call);
  if (call.segments.empty()) return;
  // Packs start at multiples of kPack of the buffer, so that their addresses are aligned.
  const int64_t first = call.segments.front().first / kPack * kPack;
  const int64_t last = call.segments.back().first + call.segments.back().count;
  if (last <= first) return;
  const bool is_wide = aligned16(call.gradient.data) && aligned16(call.master.data) &&
                       aligned16(call.m.data) && aligned16(call.v.data) &&
                       aligned16(call.value.data);
  with_type(call.value.dtype, "adamw", [&]<class T>() {
    const AdamWArguments<T> a{elements<float>(call.gradient),
                              elements<float>(call.master),
                              elements<float>(call.m),
                              elements<float>(call.v),
                              elements<T>(call.value),
                              call.device_segments,
                              static_cast<int>(call.segments.size()),
                              first,
                              last,
                              call.beta1,
                              call.beta2,
                              call.epsilon,
                              call.state};
    const unsigned blocks = blocks_for(last - first, kThreads * kPack);
    if (is_wide)
      adamw_kernel<T, kPack><<<blocks, kThreads, 0, native(stream)>>>(a);
    else
      adamw_kernel<T, 1><<<blocks, kThreads, 0, native(stream)>>>(a);
    check_launch("adamw");
  });
}

void add_squared_norm(Stream& stream, TensorView x, StepState* state) {
  require(x.dtype == DType::f32, ExitCode::internal, "add_squared_norm: x is {}, expected f32",
          name_of(x.dtype));
  if (x.empty()) return;
  auto* partial = reinterpret_cast<double*>(work_memory(stream));
  const auto blocks =
      static_cast<int>(std::min<int64_t>(kNormBlocks, ceil_div(x.elements(), kNormPiece)));
  const float* values = elements<float>(x);
  if (aligned16(x.data))
    squares_kernel<4><<<blocks, kThreads, 0, native(stream)>>>(values, x.elements(), partial);
  else
    squares_kernel<1><<<blocks, kThreads, 0, native(stream)>>>(values, x.elements(), partial);
  check_launch("add_squared_norm");
  add_squares_kernel<<<1, kThreads, 0, native(stream)>>>(partial, blocks, state);
  check_launch("add_squared_norm: sum");
}

}  // namespace trireme::inline TRIREME_BACKEND
