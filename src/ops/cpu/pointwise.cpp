// GELU and SwiGLU, forward and backward.
#include "ops/cpu/fast_math.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace {

constexpr int64_t kBlock = 1 << 13;

void check_swiglu(const Matrix& x, const Matrix& half, const char* what) {
  require(x.cols == 2 * half.cols && x.rows == half.rows && x.dtype == half.dtype,
          ExitCode::internal, "{} is {} [{}, {}] where x is {} [{}, {}]; expected half the columns",
          what, name_of(half.dtype), half.rows, half.cols, name_of(x.dtype), x.rows, x.cols);
}

// Row `r` of a matrix.
template <class Storage>
typename Storage::Element* row_of(const Matrix& matrix, int64_t r) {
  return reinterpret_cast<typename Storage::Element*>(matrix.data) + r * matrix.stride;
}

template <class Storage>
void swiglu_row(const typename Storage::Element* __restrict gate,
                const typename Storage::Element* __restrict up,
                typename Storage::Element* __restrict y, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float g = Storage::load(gate[i]);
    y[i] = Storage::store(g * sigmoid(g) * Storage::load(up[i]));
  }
}

// d_gate may be gate and d_up may be up.
template <class Storage>
void swiglu_backward_row(const typename Storage::Element* gate, const typename Storage::Element* up,
                         const typename Storage::Element* dy, typename Storage::Element* d_gate,
                         typename Storage::Element* d_up, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float g = Storage::load(gate[i]);
    const float u = Storage::load(up[i]);
    const float d = Storage::load(dy[i]);
    const Logistic s = logistic(g);
    d_gate[i] = Storage::store(d * u * (s.value + g * s.slope));
    d_up[i] = Storage::store(d * (g * s.value));
  }
}

}  // namespace

void gelu_forward(Stream&, TensorView x, TensorView y) {
  require_like(y, x, "gelu_forward: y");
  if (x.empty()) return;
  with_storage(x.dtype, "gelu_forward", [&]<class Storage>(Storage) {
    using Element = typename Storage::Element;
    const Element* from = x.ptr<Element>();
    Element* to = y.ptr<Element>();
    for_blocks(x.elements(), kBlock, [&](int64_t first, int64_t last) {
#pragma omp simd
      for (int64_t i = first; i < last; ++i) to[i] = Storage::store(gelu(Storage::load(from[i])));
    });
  });
}

void gelu_backward(Stream&, TensorView x, TensorView dy, TensorView dx) {
  require_like(dy, x, "gelu_backward: dy");
  require_like(dx, x, "gelu_backward: dx");
  if (x.empty()) return;
  with_storage(x.dtype, "gelu_backward", [&]<class Storage>(Storage) {
    using Element = typename Storage::Element;
    const Element* from = x.ptr<Element>();
    const Element* d = dy.ptr<Element>();
    Element* to = dx.ptr<Element>();
    for_blocks(x.elements(), kBlock, [&](int64_t first, int64_t last) {
#pragma omp simd
      for (int64_t i = first; i < last; ++i)
        to[i] = Storage::store(Storage::load(d[i]) * gelu_slope(Storage::load(from[i])));
    });
  });
}

void swiglu_forward(Stream&, Matrix x, Matrix y) {
  check_swiglu(x, y, "swiglu_forward: y");
  if (y.empty()) return;
  with_storage(x.dtype, "swiglu_forward", [&]<class Storage>(Storage) {
    for_rows(y.rows, x.cols, [&](int64_t r) {
      const auto* row = row_of<Storage>(x, r);
      swiglu_row<Storage>(row, row + y.cols, row_of<Storage>(y, r), y.cols);
    });
  });
}

void swiglu_backward(Stream&, Matrix x, Matrix dy, Matrix dx) {
  check_swiglu(x, dy, "swiglu_backward: dy");
  check_swiglu(dx, dy, "swiglu_backward: dy");
  if (dy.empty()) return;
  with_storage(x.dtype, "swiglu_backward", [&]<class Storage>(Storage) {
    for_rows(dy.rows, x.cols, [&](int64_t r) {
      const auto* row = row_of<Storage>(x, r);
      auto* out = row_of<Storage>(dx, r);
      swiglu_backward_row<Storage>(row, row + dy.cols, row_of<Storage>(dy, r), out, out + dy.cols,
                                   dy.cols);
    });
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
