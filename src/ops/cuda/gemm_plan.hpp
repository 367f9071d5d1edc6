// Plans of matrix products: cuBLASLt descriptors and the algorithm, made once for each kind of
// call.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <unordered_map>

#include "device/cuda/stream_state.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Throws Error(device) unless `status` is success.
void check_blas(cublasStatus_t status, const char* what,
                std::source_location where = std::source_location::current());

// Everything that descriptors and the choice of algorithm depend on.
struct GemmKey {
  int64_t m = 0, n = 0, k = 0;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  uint32_t alignment_a = 0, alignment_b = 0, alignment_c = 0;  // bytes, at most 256
  DType input = DType::f32, output = DType::f32;
  bool transpose_a = false, transpose_b = false;
  bool accumulates = false;            // beta is not 0
  Epilogue epilogue = Epilogue::none;  // none or bias: what the library does
  bool operator==(const GemmKey&) const = default;
};
struct GemmKeyHash {
  size_t operator()(const GemmKey& key) const;
};

// Owns the descriptors of one kind of call. Row-major c = op(a) op(b) is the column-major product
// c^T = op(b)^T op(a)^T: the library's first operand is b.
class GemmPlan {
 public:
  GemmPlan(cublasLtHandle_t handle, const GemmKey& key, bool allow_tf32);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  // False where the library has no algorithm for this kind of call.
  bool possible() const { return possible_; }
  void run(cublasLtHandle_t handle, const Gemm& call, std::byte* workspace, cudaStream_t stream);

 private:
  void describe(const GemmKey& key, bool allow_tf32);
  void choose(cublasLtHandle_t handle, const GemmKey& key);
  void release();

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool possible_ = false;
};

// The library handle and the plans of one stream.
class GemmPlans {
 public:
  GemmPlans();
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;
  GemmPlan& find(const GemmKey& key, bool allow_tf32);
  cublasLtHandle_t handle() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::unordered_map<GemmKey, std::unique_ptr<GemmPlan>, GemmKeyHash> plans_;
};

}  // namespace trireme::inline TRIREME_BACKEND
