// Matrix products, column sums, casts and sums against f64 references.
#include <gtest/gtest.h>
#include <omp.h>

#include <tuple>

#include "support/ops_data.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::scaled_error;
using test::TestMatrix;

double reference_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

// op(a) op(b) + beta c, dense.
std::vector<double> reference_product(const std::vector<float>& a, const std::vector<float>& b,
                                      const std::vector<float>& c, int64_t m, int64_t n, int64_t k,
                                      bool ta, bool tb, float beta) {
  std::vector<double> out;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = beta == 0 ? 0.0 : static_cast<double>(beta) * c[static_cast<size_t>(i * n + j)];
      for (int64_t p = 0; p < k; ++p)
        sum += static_cast<double>(a[static_cast<size_t>(ta ? p * m + i : i * k + p)]) *
               b[static_cast<size_t>(tb ? j * k + p : p * n + j)];
      out.push_back(sum);
    }
  }
  return out;
}

struct Types {
  DType in, out;
  double tolerance;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32, 2e-6},
                            {DType::bf16, DType::f32, 2e-6},
                            {DType::bf16, DType::bf16, 5e-3}};

class Products : public testing::TestWithParam<std::tuple<Types, bool, bool, float>> {
 protected:
  Device device_{DeviceOptions{.threads = 2}};
};

TEST_P(Products, EqualTheReference) {
  const auto [types, ta, tb, beta] = GetParam();
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                {37, 61, 19},
                                {5, 130, 1},
                                {1100, 3, 70},
                                {33, 1031, 40},
                                {7, 9, 1100}}) {
    TestMatrix a = TestMatrix::random(ta ? k : m, ta ? m : k, types.in, 1, 3);
    TestMatrix b = TestMatrix::random(tb ? n : k, tb ? k : n, types.in, 2, 5);
    TestMatrix c(m, n, types.out, 2);
    if (beta != 0) c = TestMatrix::random(m, n, types.out, 3, 2);
    const auto expected = reference_product(a.get(), b.get(), c.get(), m, n, k, ta, tb, beta);
    gemm(device_.compute(), {.a = a.view(),
                             .b = b.view(),
                             .c = c.view(),
                             .transpose_a = ta,
                             .transpose_b = tb,
                             .beta = beta});
    EXPECT_LT(scaled_error(c.get(), expected), types.tolerance) << m << " " << n << " " << k;
    EXPECT_TRUE(c.padding_untouched());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Products,
                         testing::Combine(testing::ValuesIn(kTypes), testing::Bool(),
                                          testing::Bool(), testing::Values(0.0f, 1.0f, -0.5f)));

class Gemms : public testing::Test {
 protected:
  Device device_{DeviceOptions{.threads = 2}};
  Stream& stream_ = device_.compute();
};

TEST_F(Gemms, EpiloguesAddBiasAndApplyGelu) {
  const int64_t m = 1030, n = 67, k = 29;  // more rows than one block of the epilogue
  for (const Types& types : kTypes) {
    TestMatrix a = TestMatrix::random(m, k, types.in, 1, 1);
    TestMatrix b = TestMatrix::random(n, k, types.in, 2, 1);
    TestMatrix bias = TestMatrix::random(1, n, types.in, 3, 0, 2);
    TestMatrix c(m, n, types.out, 4);
    TestMatrix pre(m, n, types.out, 2);
    auto product = reference_product(a.get(), b.get(), {}, m, n, k, false, true, 0);
    const auto shift = bias.get();
    for (size_t i = 0; i < product.size(); ++i)
      product[i] += static_cast<double>(shift[i % static_cast<size_t>(n)]);
    Gemm call{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_b = true};
    call.epilogue = Epilogue::bias;
    call.bias = bias.tensor({n});
    gemm(stream_, call);
    EXPECT_LT(scaled_error(c.get(), product), types.tolerance);
    call.epilogue = Epilogue::bias_gelu;
    call.pre_activation = pre.view();
    gemm(stream_, call);
    EXPECT_LT(scaled_error(pre.get(), product), types.tolerance);
    for (double& value : product) value = reference_gelu(value);
    EXPECT_LT(scaled_error(c.get(), product), types.tolerance);
    EXPECT_TRUE(c.padding_untouched() && pre.padding_untouched());
    const auto kept = c.get();
    c = TestMatrix(m, n, types.out, 4);
    call.c = c.view();
    call.pre_activation = {};
    gemm(stream_, call);
    EXPECT_EQ(c.get(), kept);
  }
}

// Recomputing the activation from what was kept must not change a bit.
TEST_F(Gemms, GeluOfThePreActivationIsTheOutput) {
  const int64_t m = 45, n = 53, k = 16;
  for (const Types& types : {kTypes[0], kTypes[2]}) {
    TestMatrix a = TestMatrix::random(m, k, types.in, 1);
    TestMatrix b = TestMatrix::random(k, n, types.in, 2);
    TestMatrix bias = TestMatrix::random(1, n, types.in, 3);
    TestMatrix c(m, n, types.out), pre(m, n, types.out), again(m, n, types.out);
    gemm(stream_, {.a = a.view(),
                   .b = b.view(),
                   .c = c.view(),
                   .epilogue = Epilogue::bias_gelu,
                   .bias = bias.tensor({n}),
                   .pre_activation = pre.view()});
    gelu_forward(stream_, pre.tensor({m, n}), again.tensor({m, n}));
    EXPECT_EQ(again.get(), c.get());
  }
}

TEST_F(Gemms, EmptyDepthWritesZerosAndEmptyOutputsNothing) {
  for (const Types& types : kTypes) {
    TestMatrix a(5, 0, types.in), b(0, 7, types.in), c(5, 7, types.out, 1);
    gemm(stream_, {.a = a.view(), .b = b.view(), .c = c.view()});
    EXPECT_EQ(c.get(), std::vector<float>(35, 0.0f));
    TestMatrix bias = TestMatrix::random(1, 7, types.in, 3);
    gemm(stream_, {.a = a.view(),
                   .b = b.view(),
                   .c = c.view(),
                   .epilogue = Epilogue::bias,
                   .bias = bias.tensor({7})});
    for (int64_t i = 0; i < 35; ++i)
      EXPECT_EQ(c.get()[static_cast<size_t>(i)], bias.get()[static_cast<size_t>(i % 7)]);
    c.set(std::vector<float>(35, 2.0f));
    gemm(stream_, {.a = a.view(), .b = b.view(), .c = c.view(), .beta = 1});
    EXPECT_EQ(c.get(), std::vector<float>(35, 2.0f));
    TestMatrix none(0, 7, types.out), x(0, 3, types.in), y(3, 7, types.in);
    gemm(stream_, {.a = x.view(), .b = y.view(), .c = none.view()});
  }
}

TEST_F(Gemms, WrongShapesAndTypesAreErrors) {
  TestMatrix a(3, 4, DType::f32), b(5, 6, DType::f32), c(3, 6, DType::f32), d(4, 6, DType::bf16);
  EXPECT_THROW(gemm(stream_, {.a = a.view(), .b = b.view(), .c = c.view()}), Error);
  EXPECT_THROW(gemm(stream_, {.a = a.view(), .b = d.view(), .c = c.view()}), Error);
  TestMatrix e(4, 6, DType::f32), bias(1, 5, DType::f32), half(3, 6, DType::bf16);
  EXPECT_THROW(gemm(stream_, {.a = a.view(),
                              .b = e.view(),
                              .c = c.view(),
                              .epilogue = Epilogue::bias,
                              .bias = bias.tensor({5})}),
               Error);
  EXPECT_THROW(gemm(stream_, {.a = a.view(), .b = e.view(), .c = half.view()}), Error);
}

// A sum of many small terms in bf16 storage: f32 accumulation keeps all of them (2^-12 added 4096
// times to 0 is 1; in bf16 it would stop at 0.0625).
TEST_F(Gemms, AccumulationIsSinglePrecision) {
  TestMatrix a(1, 4096, DType::bf16), b(4096, 1, DType::bf16), c(1, 1, DType::bf16);
  a.set(std::vector<float>(4096, 1.0f / 4096));
  b.set(std::vector<float>(4096, 1.0f));
  gemm(stream_, {.a = a.view(), .b = b.view(), .c = c.view()});
  EXPECT_EQ(c.get()[0], 1.0f);
  TestMatrix x(4096, 1, DType::bf16), sum(1, 1, DType::f32);
  x.set(std::vector<float>(4096, 1.0f / 4096));
  sum.set(std::vector<float>{1});
  add_column_sums(stream_, x.view(), sum.tensor({1}));
  EXPECT_EQ(sum.get()[0], 2.0f);
}

TEST_F(Gemms, ColumnSumsAddInAFixedOrder) {
  for (const DType type : {DType::f32, DType::bf16}) {
    TestMatrix x = TestMatrix::random(333, 301, type, 4, 3);
    TestMatrix sum = TestMatrix::random(1, 301, DType::f32, 5);
    const auto values = x.get();
    const auto start = sum.get();
    std::vector<double> expected(start.begin(), start.end());
    for (size_t i = 0; i < values.size(); ++i) expected[i % 301] += static_cast<double>(values[i]);
    add_column_sums(stream_, x.view(), sum.tensor({301}));
    EXPECT_LT(scaled_error(sum.get(), expected), 1e-6);
    const auto two_threads = sum.get();
    sum.set(start);
    omp_set_num_threads(1);
    add_column_sums(stream_, x.view(), sum.tensor({301}));
    omp_set_num_threads(2);
    EXPECT_EQ(sum.get(), two_threads);
  }
}

TEST_F(Gemms, CastsRoundToNearestEven) {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -1.0039064f, 3.4e38f, 1e-40f};
  const std::vector<float> rounded = {1.0f,
                                      1.0f,
                                      1.015625f,
                                      -1.0078125f,
                                      std::numeric_limits<float>::infinity(),
                                      from_bf16(to_bf16(1e-40f))};
  TestMatrix x(1, 6, DType::f32), half(1, 6, DType::bf16), back(1, 6, DType::f32);
  x.set(values);
  cast(stream_, x.tensor({6}), half.tensor({6}));
  EXPECT_EQ(half.get(), rounded);
  cast(stream_, half.tensor({6}), back.tensor({6}));
  EXPECT_EQ(back.get(), rounded);
  TestMatrix copied(1, 6, DType::f32);
  cast(stream_, x.tensor({6}), copied.tensor({6}));
  EXPECT_EQ(copied.get(), values);
  x.set(std::vector<float>(6, std::numeric_limits<float>::quiet_NaN()));
  cast(stream_, x.tensor({6}), half.tensor({6}));
  EXPECT_TRUE(std::isnan(half.get()[3]));
}

TEST_F(Gemms, AddAddsInPlace) {
  for (const DType type : {DType::f32, DType::bf16}) {
    TestMatrix x = TestMatrix::random(1, 40001, type, 6), y = TestMatrix::random(1, 40001, type, 7);
    const auto a = x.get(), b = y.get();
    add(stream_, x.tensor({40001}), y.tensor({40001}));
    const auto sum = y.get();
    for (size_t i = 0; i < sum.size(); ++i)
      ASSERT_EQ(sum[i], type == DType::f32 ? a[i] + b[i] : from_bf16(to_bf16(a[i] + b[i])));
    TestMatrix other(1, 3, type);
    EXPECT_THROW(add(stream_, other.tensor({3}), y.tensor({40001})), Error);
  }
}

TEST_F(Gemms, WorkspaceHasAFixedSize) {
  const size_t before = workspace_bytes();
  EXPECT_GT(before, 0u);
  TestMatrix a = TestMatrix::random(2100, 30, DType::bf16, 1),
             b = TestMatrix::random(30, 2100, DType::bf16, 2);
  TestMatrix c(2100, 2100, DType::bf16);
  gemm(stream_, {.a = a.view(), .b = b.view(), .c = c.view()});
  EXPECT_EQ(workspace_bytes(), before);
}

}  // namespace
}  // namespace trireme
