// Matrix products by cuBLASLt, with the epilogues that it does not do as kernels of our own.
#include <algorithm>
#include <bit>

#include "ops/cuda/gemm_epilogue.hpp"
#include "ops/cuda/gemm_plan.hpp"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

void check_matrix(const Matrix& x, const char* what) {
  require(x.rows <= 1 || x.cols <= x.stride, ExitCode::internal,
          "gemm: {} is [{}, {}] with stride {}", what, x.rows, x.cols, x.stride);
}

void check_epilogue(const Gemm& call) {
  if (call.epilogue == Epilogue::none) return;
  require(call.bias.elements() == call.c.cols && call.bias.dtype == call.a.dtype,
          ExitCode::internal, "gemm: bias is {} {}, expected {} elements of {}",
          name_of(call.bias.dtype), call.bias.shape.text(), call.c.cols, name_of(call.a.dtype));
  const Matrix& pre = call.pre_activation;
  if (call.epilogue != Epilogue::bias_gelu || pre.data == nullptr) return;
  require(pre.rows == call.c.rows && pre.cols == call.c.cols && pre.dtype == call.c.dtype,
          ExitCode::internal, "gemm: pre_activation is {} [{}, {}], expected {} [{}, {}]",
          name_of(pre.dtype), pre.rows, pre.cols, name_of(call.c.dtype), call.c.rows, call.c.cols);
}

// Returns k.
int64_t check(const Gemm& call) {
  const Matrix &a = call.a, &b = call.b, &c = call.c;
  const int64_t k = call.transpose_a ? a.rows : a.cols;
  const auto shape_ok = [](const Matrix& x, bool transposed, int64_t rows, int64_t cols) {
    return transposed ? x.rows == cols && x.cols == rows : x.rows == rows && x.cols == cols;
  };
  require(shape_ok(a, call.transpose_a, c.rows, k) && shape_ok(b, call.transpose_b, k, c.cols),
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
  check_epilogue(call);
  return k;
}

// The largest power of two that divides the address, at most 256.
uint32_t alignment_of(const std::byte* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  return value == 0 ? 256u : std::min(256u, 1u << std::min(std::countr_zero(value), 8));
}

GemmKey key_of(const Gemm& call, int64_t k) {
  GemmKey key;
  key.m = call.c.rows;
  key.n = call.c.cols;
  key.k = k;
  key.stride_a = call.a.stride;
  key.stride_b = call.b.stride;
  key.stride_c = call.c.stride;
  key.alignment_a = alignment_of(call.a.data);
  key.alignment_b = alignment_of(call.b.data);
  key.alignment_c = alignment_of(call.c.data);
  key.input = call.a.dtype;
  key.output = call.c.dtype;
  key.transpose_a = call.transpose_a;
  key.transpose_b = call.transpose_b;
  key.accumulates = call.beta != 0;
  key.epilogue = call.epilogue;
  return key;
}

// False, with nothing done, where the library has no algorithm.
bool multiply(Stream& stream, const Gemm& call, int64_t k) {
  const auto make = [] { return std::make_shared<GemmPlans>(); };
  auto& plans = stream.state().attached<GemmPlans>(Attachment::gemm, make);
  GemmPlan& plan = plans.find(key_of(call, k), stream.state().allow_tf32);
  if (!plan.possible()) return false;
  plan.run(plans.handle(), call, work_memory(stream), stream.state().stream);
  return true;
}

// The product with its epilogue. The bias is the library's where that can be. The activation is a
// kernel of ours: the library's acts on the sum before that is rounded, and recomputing from what
// is kept must give the same bits.
void multiply_and_finish(Stream& stream, const Gemm& call, int64_t k) {
  // With an activation behind it, the product goes to where its input is kept.
  Gemm product = call;
  product.pre_activation = {};
  if (call.epilogue == Epilogue::bias_gelu) {
    require(call.beta == 0, ExitCode::internal, "gemm: bias_gelu with a beta of {}", call.beta);
    if (call.pre_activation.data != nullptr) product.c = call.pre_activation;
    product.epilogue = Epilogue::bias;
  }
  // The library's bias has the type of c.
  const bool own_bias =
      product.epilogue != Epilogue::none && (call.c.dtype != call.a.dtype || k == 0);
  if (own_bias) product.epilogue = Epilogue::none;
  if (k == 0) {
    scale_matrix(stream, product.c, call.beta);
  } else {
    require(
        multiply(stream, product, k), ExitCode::device,
        "cuBLASLt has no algorithm for [{}, {}]{} times [{}, {}]{} of {} to {} with strides {}, "
        "{}, {}",
        call.a.rows, call.a.cols, call.transpose_a ? "^T" : "", call.b.rows, call.b.cols,
        call.transpose_b ? "^T" : "", name_of(call.a.dtype), name_of(call.c.dtype), call.a.stride,
        call.b.stride, call.c.stride);
  }
  if (own_bias) add_bias(stream, product.c, call.bias);
  if (call.epilogue == Epilogue::bias_gelu) gelu_matrix(stream, product.c, call.c);
}

}  // namespace

void gemm(Stream& stream, const Gemm& call) {
  const int64_t k = check(call);
  if (call.c.empty()) return;
  multiply_and_finish(stream, call, k);
}

size_t workspace_bytes() {
  return kWorkBytes;
}

}  // namespace trireme::inline TRIREME_BACKEND
