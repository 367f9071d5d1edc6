// Descriptors and algorithms of cuBLASLt. The algorithm is the first that the library's heuristic
// proposes for a fixed amount of work memory: the same on every rank with the same device and
// library.
#include "ops/cuda/gemm_plan.hpp"

#include <functional>

#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

cudaDataType_t data_type(DType type) {
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// A stored row-major matrix [rows, cols] as the library's column-major [cols, rows].
void make_layout(cublasLtMatrixLayout_t& layout, DType type, int64_t rows, int64_t cols,
                 int64_t stride) {
  check_blas(cublasLtMatrixLayoutCreate(&layout, data_type(type), static_cast<uint64_t>(cols),
                                        static_cast<uint64_t>(rows), std::max(stride, cols)),
             "describing a matrix");
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_blas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
             "describing a product");
}

// Owns a preference while an algorithm is chosen.
class Preference {
 public:
  Preference() { check_blas(cublasLtMatmulPreferenceCreate(&preference_), "making a preference"); }
  ~Preference() { static_cast<void>(cublasLtMatmulPreferenceDestroy(preference_)); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
               "setting a preference");
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace

void check_blas(cublasStatus_t status, const char* what, std::source_location where) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw Error(ExitCode::device,
              fmt::format("cuBLASLt, {}: {}", what, cublasLtGetStatusString(status)), where);
}

size_t GemmKeyHash::operator()(const GemmKey& key) const {
  size_t hash = 0;
  const auto mix = [&](int64_t value) {
    hash = (hash ^ std::hash<int64_t>()(value)) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  };
  for (int64_t v : {key.m, key.n, key.k, key.stride_a, key.stride_b, key.stride_c}) mix(v);
  mix(key.alignment_a + (int64_t{key.alignment_b} << 16) + (int64_t{key.alignment_c} << 32));
  mix((key.transpose_a ? 1 : 0) + (key.transpose_b ? 2 : 0) + (key.accumulates ? 4 : 0) +
      8 * static_cast<int>(key.epilogue) + 64 * static_cast<int>(key.input) +
      512 * static_cast<int>(key.output));
  return hash;
}

GemmPlan::GemmPlan(cublasLtHandle_t handle, const GemmKey& key, bool allow_tf32) {
  try {
    describe(key, allow_tf32);
    choose(handle, key);
  } catch (...) {
    release();
    throw;
  }
}

GemmPlan::~GemmPlan() {
  release();
}

void GemmPlan::release() {
  static_cast<void>(cublasLtMatrixLayoutDestroy(first_));
  static_cast<void>(cublasLtMatrixLayoutDestroy(second_));
  static_cast<void>(cublasLtMatrixLayoutDestroy(result_));
  static_cast<void>(cublasLtMatmulDescDestroy(operation_));
}

void GemmPlan::describe(const GemmKey& key, bool allow_tf32) {
  const bool rounds = allow_tf32 && key.input == DType::f32;
  check_blas(
      cublasLtMatmulDescCreate(
          &operation_, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "making a product");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.epilogue != Epilogue::none) {
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(key.input));
  }
  if (key.transpose_b)
    make_layout(first_, key.input, key.n, key.k, key.stride_b);
  else
    make_layout(first_, key.input, key.k, key.n, key.stride_b);
  if (key.transpose_a)
    make_layout(second_, key.input, key.k, key.m, key.stride_a);
  else
    make_layout(second_, key.input, key.m, key.k, key.stride_a);
  make_layout(result_, key.output, key.m, key.n, key.stride_c);
}

void GemmPlan::choose(cublasLtHandle_t handle, const GemmKey& key) {
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkBytes);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_c);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment_c);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, operation_, first_, second_, result_, result_, preference.get(), 1, &found, &count);
  possible_ = status == CUBLAS_STATUS_SUCCESS && count > 0;
  algorithm_ = found.algo;
}

void GemmPlan::run(cublasLtHandle_t handle, const Gemm& call, std::byte* workspace,
                   cudaStream_t stream) {
  if (call.epilogue != Epilogue::none) {
    const void* bias = call.bias.data;
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  const float alpha = 1;
  check_blas(cublasLtMatmul(handle, operation_, &alpha, call.b.data, first_, call.a.data, second_,
                            &call.beta, call.c.data, result_, call.c.data, result_, &algorithm_,
                            workspace, kWorkBytes, stream),
             "matrix product");
}

GemmPlans::GemmPlans() {
  check_blas(cublasLtCreate(&handle_), "start");
}
GemmPlans::~GemmPlans() {
  plans_.clear();
  static_cast<void>(cublasLtDestroy(handle_));
}

GemmPlan& GemmPlans::find(const GemmKey& key, bool allow_tf32) {
  std::unique_ptr<GemmPlan>& plan = plans_[key];
  if (!plan) plan = std::make_unique<GemmPlan>(handle_, key, allow_tf32);
  return *plan;
}

}  // namespace trireme::inline TRIREME_BACKEND
