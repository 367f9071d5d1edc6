// GELU, SwiGLU, casts and adds: one thread for 16 bytes of each operand.
#include "ops/cuda/activation.cuh"
#include "ops/cuda/kernel.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 256;

template <class T>
struct GeluForward {
  const T* x;
  T* y;
  template <int V>
  __device__ void run(int64_t i) const {
    float v[V];
    load(x + i, v);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = gelu(v[j]);
    store(y + i, v);
  }
};

template <class T>
struct GeluBackward {
  const T *x, *dy;
  T* dx;
  template <int V>
  __device__ void run(int64_t i) const {
    float v[V], d[V];
    load(x + i, v);
    load(dy + i, d);
#pragma unroll
    for (int j = 0; j < V; ++j) d[j] *= gelu_slope(v[j]);
    store(dx + i, d);
  }
};

template <class From, class To>
struct Cast {
  const From* from;
  To* to;
  template <int V>
  __device__ void run(int64_t i) const {
    float v[V];
    load(from + i, v);
    store(to + i, v);
  }
};

template <class T>
struct Add {
  const T* x;
  T* y;
  template <int V>
  __device__ void run(int64_t i) const {
    float a[V], b[V];
    load(x + i, a);
    load(y + i, b);
#pragma unroll
    for (int j = 0; j < V; ++j) b[j] += a[j];
    store(y + i, b);
  }
};

template <class T>
struct SumParts {
  const T* parts;
  T* sum;
  int64_t count, n;
  template <int V>
  __device__ void run(int64_t i) const {
    float total[V] = {};
    for (int64_t part = 0; part < n; ++part) {
      float v[V];
      load(parts + part * count + i, v);
#pragma unroll
      for (int j = 0; j < V; ++j) total[j] += v[j];
    }
    store(sum + i, total);
  }
};

// f.run<V>(i) over [0, count), the tail one by one.
template <int V, class F>
__global__ void __launch_bounds__(kThreads) each_kernel(int64_t count, F f) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i + V <= count) {
    f.template run<V>(i);
  } else {
    for (int64_t j = i; j < count; ++j) f.template run<1>(j);
  }
}

template <int V, class F>
void for_each(Stream& stream, int64_t count, const F& f, const char* operation) {
  if (count == 0) return;
  each_kernel<V><<<blocks_for(count, kThreads * V), kThreads, 0, native(stream)>>>(count, f);
  check_launch(operation);
}

// One block for a piece of a row; rows in x, pieces in y.
template <class T, int V>
__global__ void swiglu_forward_kernel(const T* x, int64_t x_stride, T* y, int64_t y_stride,
                                      int64_t width) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (column >= width) return;
  const T* row = x + blockIdx.x * x_stride;
  float gate[V], up[V];
  load(row + column, gate);
  load(row + width + column, up);
#pragma unroll
  for (int j = 0; j < V; ++j) up[j] *= gate[j] * sigmoid(gate[j]);
  store(y + blockIdx.x * y_stride + column, up);
}

template <class T, int V>
__global__ void swiglu_backward_kernel(const T* x, int64_t x_stride, const T* dy, int64_t dy_stride,
                                       T* dx, int64_t dx_stride, int64_t width) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (column >= width) return;
  const T* row = x + blockIdx.x * x_stride;
  T* out = dx + blockIdx.x * dx_stride;
  float gate[V], up[V], d[V];
  load(row + column, gate);
  load(row + width + column, up);
  load(dy + blockIdx.x * dy_stride + column, d);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float s = sigmoid(gate[j]);
    const float silu = gate[j] * s;
    const float d_gate = d[j] * up[j] * (s + silu * (1.0f - s));
    up[j] = d[j] * silu;
    gate[j] = d_gate;
  }
  store(out + column, gate);
  store(out + width + column, up);
}

template <int V>
dim3 piece_grid(int64_t rows, int64_t width) {
  return {blocks_for(rows, 1), blocks_for(width, kThreads * V)};
}

}  // namespace

void gelu_forward(Stream& stream, TensorView x, TensorView y) {
  require_like(y, x, "gelu_forward: y");
  with_type(x.dtype, aligned16(x.data) && aligned16(y.data), "gelu_forward", [&]<class T, int V>() {
    for_each<V>(stream, x.elements(), GeluForward<T>{elements<T>(x), elements<T>(y)},
                "gelu_forward");
  });
}

void gelu_backward(Stream& stream, TensorView x, TensorView dy, TensorView dx) {
  require_like(dy, x, "gelu_backward: dy");
  require_like(dx, x, "gelu_backward: dx");
  const bool is_wide = aligned16(x.data) && aligned16(dy.data) && aligned16(dx.data);
  with_type(x.dtype, is_wide, "gelu_backward", [&]<class T, int V>() {
    const GeluBackward<T> f{elements<T>(x), elements<T>(dy), elements<T>(dx)};
    for_each<V>(stream, x.elements(), f, "gelu_backward");
  });
}

void swiglu_forward(Stream& stream, Matrix x, Matrix y) {
  require_matrix(y, x.rows, x.cols / 2, x.dtype, "swiglu_forward: y");
  require(x.cols % 2 == 0, ExitCode::internal, "swiglu_forward: x has an odd width {}", x.cols);
  if (y.empty()) return;
  with_type(
      x.dtype, wide({x, y}) && wide(x.columns(0, y.cols)), "swiglu_forward", [&]<class T, int V>() {
        swiglu_forward_kernel<T, V><<<piece_grid<V>(y.rows, y.cols), kThreads, 0, native(stream)>>>(
            elements<T>(x), x.stride, elements<T>(y), y.stride, y.cols);
        check_launch("swiglu_forward");
      });
}

void swiglu_backward(Stream& stream, Matrix x, Matrix dy, Matrix dx) {
  require_matrix(dy, x.rows, x.cols / 2, x.dtype, "swiglu_backward: dy");
  require_matrix(dx, x.rows, x.cols, x.dtype, "swiglu_backward: dx");
  require(x.cols % 2 == 0, ExitCode::internal, "swiglu_backward: x has an odd width {}", x.cols);
  if (dy.empty()) return;
  with_type(x.dtype, wide({x, dy, dx}), "swiglu_backward", [&]<class T, int V>() {
    swiglu_backward_kernel<T, V><<<piece_grid<V>(dy.rows, dy.cols), kThreads, 0, native(stream)>>>(
        elements<T>(x), x.stride, elements<T>(dy), dy.stride, elements<T>(dx), dx.stride, dy.cols);
    check_launch("swiglu_backward");
  });
}

void cast(Stream& stream, TensorView from, TensorView to) {
  require(from.elements() == to.elements(), ExitCode::internal, "cast of {} elements to {}",
          from.elements(), to.elements());
  const bool is_wide = aligned16(from.data) && aligned16(to.data);
  with_type(from.dtype, "cast", [&]<class From>() {
    with_type(to.dtype, "cast", [&]<class To>() {
      const Cast<From, To> f{elements<From>(from), elements<To>(to)};
      if (is_wide)
        for_each<8>(stream, from.elements(), f, "cast");
      else
        for_each<1>(stream, from.elements(), f, "cast");
    });
  });
}

void add(Stream& stream, TensorView x, TensorView y) {
  require_like(y, x, "add: y");
  with_type(x.dtype, aligned16(x.data) && aligned16(y.data), "add", [&]<class T, int V>() {
    for_each<V>(stream, x.elements(), Add<T>{elements<T>(x), elements<T>(y)}, "add");
  });
}

void sum_parts(Stream& stream, TensorView parts, TensorView sum) {
  const int64_t count = sum.elements(), n = count == 0 ? 0 : parts.elements() / count;
  require(parts.dtype == sum.dtype && parts.elements() == n * count, ExitCode::internal,
          "sum_parts: parts is {} {}, the sum {} {}", name_of(parts.dtype), parts.shape.text(),
          name_of(sum.dtype), sum.shape.text());
  const bool is_wide = aligned16(parts.data) && aligned16(sum.data) && sum.bytes() % 16 == 0;
  with_type(sum.dtype, is_wide, "sum_parts", [&]<class T, int V>() {
    for_each<V>(stream, count, SumParts<T>{elements<T>(parts), elements<T>(sum), count, n},
                "sum_parts");
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
