// Matrix products: f32 by BLAS in place; bf16 through f32 tiles of a fixed size, rounded once.
#include <limits>

#include "ops/cpu/blas.hpp"
#include "ops/cpu/fast_math.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "ops/cpu/workspace.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Rows whose epilogue runs while they may still be in the last cache. Each piece costs BLAS another
// packing of b, so that smaller ones are slower.
constexpr int64_t kEpilogueRows = 2048;

struct Sizes {
  int64_t m = 0, n = 0, k = 0;
};

void check_matrix(const Matrix& x, const char* what) {
  constexpr int64_t kLimit = std::numeric_limits<blasint>::max();
  require(x.rows <= kLimit && x.stride <= kLimit && (x.rows <= 1 || x.cols <= x.stride),
          ExitCode::internal, "gemm: {} is [{}, {}] with stride {}; BLAS takes sizes below {}",
          what, x.rows, x.cols, x.stride, kLimit);
}

Sizes check(const Gemm& call) {
  const Matrix& a = call.a;
  const Matrix& b = call.b;
  const Matrix& c = call.c;
  const Sizes s{c.rows, c.cols, call.transpose_a ? a.rows : a.cols};
  const auto shape_ok = [](const Matrix& x, bool transposed, int64_t rows, int64_t cols) {
    return transposed ? x.rows == cols && x.cols == rows : x.rows == rows && x.cols == cols;
  };
  require(shape_ok(a, call.transpose_a, s.m, s.k) && shape_ok(b, call.transpose_b, s.k, s.n),
          ExitCode::internal, "gemm: [{}, {}]{} times [{}, {}]{} is not [{}, {}]", a.rows, a.cols,
          call.transpose_a ? "^T" : "", b.rows, b.cols, call.transpose_b ? "^T" : "", c.rows,
          c.cols);
  require(a.dtype == b.dtype && (c.dtype == a.dtype || c.dtype == DType::f32) &&
              (a.dtype == DType::f32 || a.dtype == DType::bf16),
          ExitCode::internal, "gemm: {} times {} to {}", name_of(a.dtype), name_of(b.dtype),
          name_of(c.dtype));
  check_matrix(a, "a");
  check_matrix(b, "b");
  check_matrix(c, "c");
  if (call.epilogue == Epilogue::none) return s;
  require_view(call.bias, {s.n}, a.dtype, "gemm: bias");
  if (call.epilogue == Epilogue::bias_gelu && call.pre_activation.data != nullptr) {
    const Matrix& pre = call.pre_activation;
    require(pre.rows == s.m && pre.cols == s.n && pre.dtype == c.dtype, ExitCode::internal,
            "gemm: pre_activation is {} [{}, {}], expected {} [{}, {}]", name_of(pre.dtype),
            pre.rows, pre.cols, name_of(c.dtype), s.m, s.n);
  }
  return s;
}

template <class Storage>
typename Storage::Element* at(const Matrix& x, int64_t row, int64_t col) {
  return reinterpret_cast<typename Storage::Element*>(x.data) + row * x.stride + col;
}

// One row of results from f32 products: bias, activation, rounding. The activation is taken of the
// rounded value, so that applying it to what `pre_activation` keeps gives the same bits.
template <class In, class Out>
void finish_row(Epilogue epilogue, const float* product, const typename In::Element* bias,
                typename Out::Element* pre, typename Out::Element* c, int64_t count) {
  if (epilogue == Epilogue::none) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) c[i] = Out::store(product[i]);
  } else if (epilogue == Epilogue::bias) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) c[i] = Out::store(product[i] + In::load(bias[i]));
  } else if (pre == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      c[i] = Out::store(gelu(Out::load(Out::store(product[i] + In::load(bias[i])))));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const auto kept = Out::store(product[i] + In::load(bias[i]));
      pre[i] = kept;
      c[i] = Out::store(gelu(Out::load(kept)));
    }
  }
}

// Finishes the block of c at (row, col) from f32 products [rows, cols].
template <class In, class Out>
void finish_block(const Gemm& call, int64_t row, int64_t col, int64_t rows, int64_t cols,
                  const float* product, int64_t stride) {
  const auto* bias = reinterpret_cast<const typename In::Element*>(call.bias.data);
  if (bias != nullptr) bias += col;
  for_rows(rows, cols, [&](int64_t r) {
    auto* pre =
        call.pre_activation.data != nullptr ? at<Out>(call.pre_activation, row + r, col) : nullptr;
    finish_row<In, Out>(call.epilogue, product + r * stride, bias, pre,
                        at<Out>(call.c, row + r, col), cols);
  });
}

const float* rows_of(const Matrix& x, bool transposed, int64_t row) {
  return transposed ? at<F32>(x, 0, row) : at<F32>(x, row, 0);
}

void gemm_f32(const Gemm& call, const Sizes& s) {
  const int64_t block = call.epilogue == Epilogue::none ? s.m : kEpilogueRows;
  for (int64_t row = 0; row < s.m; row += block) {
    const int64_t rows = std::min(block, s.m - row);
    float* c = at<F32>(call.c, row, 0);
    sgemm(Turn(call.transpose_a), Turn(call.transpose_b), rows, s.n, s.k,
          rows_of(call.a, call.transpose_a, row), call.a.stride, at<F32>(call.b, 0, 0),
          call.b.stride, call.beta, c, call.c.stride);
    if (call.epilogue != Epilogue::none)
      finish_block<F32, F32>(call, row, 0, rows, s.n, c, call.c.stride);
  }
}

// The f32 values of a block of a stored bf16 matrix, dense with `cols` elements a row.
void widen(const Matrix& x, int64_t row, int64_t col, int64_t rows, int64_t cols, float* to) {
  for_rows(rows, cols, [&](int64_t r) {
    const uint16_t* from = at<Bf16>(x, row + r, col);
    float* out = to + r * cols;
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) out[i] = from_bf16(from[i]);
  });
}

// The block (row, col) of op(x) as stored: rows and columns change places where x is transposed.
void widen_operand(const Matrix& x, bool transposed, int64_t row, int64_t col, int64_t rows,
                   int64_t cols, float* to) {
  if (transposed) return widen(x, col, row, cols, rows, to);
  widen(x, row, col, rows, cols, to);
}

template <class Out>
void scaled_block(const Gemm& call, int64_t row, int64_t col, int64_t rows, int64_t cols,
                  float* to) {
  for_rows(rows, cols, [&](int64_t r) {
    const auto* c = at<Out>(call.c, row + r, col);
    float* out = to + r * cols;
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) out[i] = call.beta * Out::load(c[i]);
  });
}

// One tile of c: the sum over k in f32, then the epilogue.
template <class Out>
void product_tile(const Gemm& call, const Sizes& s, int64_t row, int64_t col,
                  const Workspace& workspace) {
  const int64_t rows = std::min(kProductTile, s.m - row);
  const int64_t cols = std::min(kProductTile, s.n - col);
  float* product = workspace.tile(2);
  float beta = 0;
  if (call.beta != 0) {
    scaled_block<Out>(call, row, col, rows, cols, product);
    beta = 1;
  }
  int64_t first = 0;
  do {  // once also for an empty k, which writes zeros
    const int64_t depth = std::min(kProductTile, s.k - first);
    widen_operand(call.a, call.transpose_a, row, first, rows, depth, workspace.tile(0));
    widen_operand(call.b, call.transpose_b, first, col, depth, cols, workspace.tile(1));
    sgemm(Turn(call.transpose_a), Turn(call.transpose_b), rows, cols, depth, workspace.tile(0),
          call.transpose_a ? rows : depth, workspace.tile(1), call.transpose_b ? depth : cols, beta,
          product, cols);
    beta = 1;
    first += kProductTile;
  } while (first < s.k);
  finish_block<Bf16, Out>(call, row, col, rows, cols, product, cols);
}

template <class Out>
void gemm_bf16(Stream& stream, const Gemm& call, const Sizes& s) {
  const Workspace workspace(stream);
  for (int64_t row = 0; row < s.m; row += kProductTile)
    for (int64_t col = 0; col < s.n; col += kProductTile)
      product_tile<Out>(call, s, row, col, workspace);
}

}  // namespace

void gemm(Stream& stream, const Gemm& call) {
  const Sizes s = check(call);
  if (s.m == 0 || s.n == 0) return;
  if (call.a.dtype == DType::f32) return gemm_f32(call, s);
  if (call.c.dtype == DType::f32) return gemm_bf16<F32>(stream, call, s);
  gemm_bf16<Bf16>(stream, call, s);
}

}  // namespace trireme::inline TRIREME_BACKEND
