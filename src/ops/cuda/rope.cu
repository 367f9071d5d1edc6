// Rotary position embedding, half rotation (Su et al., "RoFormer", 2021, in the layout of Llama): a
// block for a row; its angles are worked out once and used by every head.
#include "ops/cuda/kernel.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int64_t kLargestHead = 256;
constexpr int kThreads = 256;

struct RopeArguments {
  const int32_t* positions;
  const float* frequencies;
  int64_t stride;
  int heads, half;
  float sign;
};

template <class T, int V>
__global__ void __launch_bounds__(kThreads) rope_kernel(T* x, RopeArguments a) {
  __shared__ alignas(16) float cosines[kLargestHead / 2];
  __shared__ alignas(16) float sines[kLargestHead / 2];
  const float position = static_cast<float>(a.positions[blockIdx.x]);
  for (int i = static_cast<int>(threadIdx.x); i < a.half; i += static_cast<int>(blockDim.x)) {
    float s, c;
    sincosf(position * a.frequencies[i], &s, &c);
    cosines[i] = c;
    sines[i] = a.sign * s;
  }
  __syncthreads();
  T* row = x + blockIdx.x * a.stride;
  const int packs = a.half / V;
  for (int p = static_cast<int>(threadIdx.x); p < a.heads * packs;
       p += static_cast<int>(blockDim.x)) {
    const int head = p / packs, i = (p - head * packs) * V;
    T* first = row + static_cast<int64_t>(head) * 2 * a.half + i;
    float lower[V], upper[V];
    load(first, lower);
    load(first + a.half, upper);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float b = lower[j], t = upper[j];
      lower[j] = b * cosines[i + j] - t * sines[i + j];
      upper[j] = t * cosines[i + j] + b * sines[i + j];
    }
    store(first, lower);
    store(first + a.half, upper);
  }
}

void check(const Rope& call) {
  require(call.head_size % 2 == 0 && call.head_size <= kLargestHead && call.head_size > 0,
          ExitCode::internal, "rope: head size {}; use an even one up to {}", call.head_size,
          kLargestHead);
  require(call.x.cols == call.heads * call.head_size, ExitCode::internal,
          "rope: {} columns for {} heads of {}", call.x.cols, call.heads, call.head_size);
  require_vector(call.positions, call.x.rows, DType::i32, "rope: positions");
  require_vector(call.frequencies, call.head_size / 2, DType::f32, "rope: frequencies");
}

}  // namespace

void rope(Stream& stream, const Rope& call) {
  check(call);
  if (call.x.empty()) return;
  const int64_t half = call.head_size / 2;
  const RopeArguments a{elements<int32_t>(call.positions),
                        elements<float>(call.frequencies),
                        call.x.stride,
                        static_cast<int>(call.heads),
                        static_cast<int>(half),
                        call.inverse ? -1.0f : 1.0f};
  const auto unit = static_cast<int64_t>(16 / size_of(call.x.dtype));
  with_type(call.x.dtype, wide(call.x) && half % unit == 0, "rope", [&]<class T, int V>() {
    const unsigned threads = threads_for(call.heads * (half / V), kThreads);
    rope_kernel<T, V>
        <<<blocks_for(call.x.rows, 1), threads, 0, native(stream)>>>(elements<T>(call.x), a);
    check_launch("rope");
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
