// Matrix products: transposes, strides, types, epilogues; and sums over rows.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

struct Product {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  DType type = DType::f32, output = DType::f32;
  float beta = 0;
  Epilogue epilogue = Epilogue::none;
  bool keeps_input = true;  // bias_gelu: pre_activation is asked for
  int64_t padding = 0;      // elements between rows
};

// Bits of f32 sums depend on their order: the error grows with the root of k and with cancellation.
double sum_tolerance(DType type, int64_t k) {
  return type == DType::bf16 ? kBf16 : kF32 * (1 + std::sqrt(static_cast<double>(k)) / 16);
}

std::vector<Output> run(Device& device, const Product& p) {
  Memory memory(device);
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols, DType type) {
    return Matrix(memory.uniform(name, {rows, cols + p.padding}, type)).columns(0, cols);
  };
  Gemm call;
  call.a = p.transpose_a ? matrix("a", p.k, p.m, p.type) : matrix("a", p.m, p.k, p.type);
  call.b = p.transpose_b ? matrix("b", p.n, p.k, p.type) : matrix("b", p.k, p.n, p.type);
  const Shape result{p.m, p.n + p.padding};
  const TensorView c =
      p.beta != 0 ? memory.uniform("c", result, p.output) : memory.zeros(result, p.output);
  const TensorView poison = memory.poisoned({p.m, p.n}, p.output);
  call.c = p.beta == 0 && p.padding == 0 ? Matrix(poison) : Matrix(c).columns(0, p.n);
  call.transpose_a = p.transpose_a;
  call.transpose_b = p.transpose_b;
  call.beta = p.beta;
  call.epilogue = p.epilogue;
  TensorView pre;
  if (p.epilogue != Epilogue::none) call.bias = memory.uniform("bias", {p.n}, p.type);
  if (p.epilogue == Epilogue::bias_gelu && p.keeps_input) {
    pre = memory.poisoned({p.m, p.n}, p.output);
    call.pre_activation = pre;
  }
  gemm(memory.stream(), call);
  double tolerance = sum_tolerance(p.output, p.k);
  // The rounding of the sum, and that of the activation.
  if (p.epilogue == Epilogue::bias_gelu && p.output == DType::bf16) tolerance *= 2;
  std::vector<Output> outputs{
      memory.read("c", p.beta == 0 && p.padding == 0 ? poison : c, tolerance)};
  if (!pre.empty()) outputs.push_back(memory.read("pre_activation", pre, tolerance));
  return outputs;
}

std::vector<Output> run_column_sums(Device& device, int64_t rows, int64_t cols, DType type,
                                    int64_t padding) {
  Memory memory(device);
  const Matrix x = Matrix(memory.uniform("x", {rows, cols + padding}, type)).columns(0, cols);
  const TensorView sum = memory.uniform("sum", {cols}, DType::f32);
  add_column_sums(memory.stream(), x, sum);
  return {memory.read("sum", sum, sum_tolerance(DType::f32, rows))};
}

}  // namespace

void gemm_cases(Device& device, CaseList& list) {
  const auto add = [&](const std::string& name, const Product& p) {
    list.push_back({"gemm_" + name, [&device, p] { return run(device, p); }});
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string t = name_of(type);
    for (int turn = 0; turn < 4; ++turn) {
      const bool a = turn % 2 != 0, b = turn >= 2;
      const std::string mark = t + (a ? "_T" : "_N") + (b ? "T" : "N");
      add(mark + "_odd", {7, 5, 3, a, b, type, type});
      add(mark + "_middle", {65, 129, 33, a, b, type, type});
      add(mark + "_even", {192, 256, 320, a, b, type, type});
      add(mark + "_padded", {48, 64, 80, a, b, type, type, 0, Epilogue::none, true, 16});
    }
    add(t + "_row", {1, 770, 96, false, true, type, type});
    add(t + "_large", {1024, 768, 768, false, true, type, type});
    add(t + "_accumulate", {130, 70, 90, true, false, type, type, 0.5f});
    add(t + "_to_f32", {96, 160, 257, true, false, type, DType::f32, 1});
    add(t + "_no_depth", {5, 6, 0, false, false, type, type});
    add(t + "_bias", {67, 96, 64, false, true, type, type, 0, Epilogue::bias});
    add(t + "_bias_odd", {67, 97, 63, false, true, type, type, 0, Epilogue::bias});
    add(t + "_bias_f32", {40, 72, 48, false, true, type, DType::f32, 0, Epilogue::bias});
    add(t + "_gelu", {67, 96, 64, false, true, type, type, 0, Epilogue::bias_gelu});
    add(t + "_gelu_odd", {67, 97, 63, false, true, type, type, 0, Epilogue::bias_gelu});
    add(t + "_gelu_only", {64, 128, 64, false, true, type, type, 0, Epilogue::bias_gelu, false});
    for (const int64_t cols : {1, 37, 768, 2304})
      for (const int64_t padding : {0, 8})
        list.push_back(
            {"column_sums_" + t + "_" + std::to_string(cols) + (padding != 0 ? "_padded" : ""),
             [&device, cols, type, padding] {
               return run_column_sums(device, 1031, cols, type, padding);
             }});
  }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
