// GELU and SwiGLU: references in f64, finite differences, bf16, in place; and the elementary
// functions they stand on.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "ops/cpu/fast_math.hpp"
#include "ops/cpu/storage.hpp"
#include "support/finite_difference.hpp"
#include "support/host_tensor.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::expect_close;
using test::HostTensor;
using test::random_values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double exact_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double exact_silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST(FastMath, ExponentialIsAccurate) {
  for (int i = 0; i <= 176000; ++i) {
    const float x = -87.3f + 0.001f * static_cast<float>(i);
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(fast_exp(x), exact, 1.5e-7 * exact) << x;
  }
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
}

TEST(FastMath, ExponentialAtTheEdges) {
  EXPECT_EQ(fast_exp(-87.4f), 0.0f);
  EXPECT_EQ(fast_exp(-kInfinity), 0.0f);
  EXPECT_EQ(fast_exp(89.0f), kInfinity);
  EXPECT_EQ(fast_exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(fast_exp(kNan)));
}

TEST(FastMath, LogisticIsAccurateOnBothSides) {
  for (int i = -80000; i <= 80000; ++i) {
    const float x = 0.001f * static_cast<float>(i);
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    const double slope = exact / (1 + std::exp(static_cast<double>(x)));
    ASSERT_NEAR(logistic(x).value, exact, 4e-7 * exact) << x;
    ASSERT_NEAR(logistic(x).slope, slope, 4e-7 * slope) << x;
    ASSERT_NEAR(sigmoid(x), exact, 4e-7 * exact) << x;
  }
}

TEST(Gelu, GoldenValues) {
  EXPECT_EQ(gelu(0.0f), 0.0f);
  EXPECT_NEAR(gelu(1.0f), 0.8411919906, 1e-7);
  EXPECT_NEAR(gelu(-1.0f), -0.1588080094, 1e-7);
  EXPECT_EQ(gelu(20.0f), 20.0f);
  EXPECT_EQ(gelu(-20.0f), 0.0f);
  EXPECT_EQ(gelu_slope(0.0f), 0.5f);
  EXPECT_TRUE(std::isnan(gelu(kNan)));
}

TEST(Gelu, SlopeMatchesReference) {
  for (int i = -8000; i <= 8000; ++i) {
    const double x = 0.001 * i;
    const double inner = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    const double slope = 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * std::sqrt(2 / M_PI) *
                                                 (1 + 3 * 0.044715 * x * x);
    ASSERT_NEAR(gelu_slope(static_cast<float>(x)), slope, 1e-6) << x;
  }
}

// The kernels' rounding has no branch; it is that of `to_bf16`, NaN included.
TEST(Storage, RoundsAsToBf16) {
  for (uint64_t high = 0; high < 0x10000; ++high)
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(high << 16) | low);
      ASSERT_EQ(Bf16::store(value), to_bf16(value)) << high << " " << low;
    }
}

class Pointwise : public testing::Test {
 protected:
  Device device_{DeviceOptions{}};
};

TEST_F(Pointwise, GeluMatchesReference) {
  for (const size_t count : {size_t{301}, size_t{40001}}) {
    const Shape shape{static_cast<int64_t>(count)};
    for (const DType type : {DType::f32, DType::bf16}) {
      HostTensor x(shape, random_values(count, 1, 6), type);
      HostTensor y(shape, type);
      gelu_forward(device_.compute(), x.view(), y.view());
      std::vector<float> expected = x.values();
      for (float& value : expected) value = static_cast<float>(exact_gelu(value));
      expect_close(y.values(), expected, type == DType::bf16 ? 4e-3 : 4e-7, "gelu");
    }
  }
}

// Whole, or in pieces of any length: recomputing a part changes no bit.
TEST_F(Pointwise, GeluGivesTheSameBitsInPieces) {
  for (const DType type : {DType::f32, DType::bf16}) {
    HostTensor x({331}, random_values(331, 1, 4), type);
    HostTensor whole({331}, type);
    gelu_forward(device_.compute(), x.view(), whole.view());
    for (int64_t cut = 1; cut <= 70; ++cut) {
      HostTensor parts({331}, type);
      gelu_forward(device_.compute(), x.view().range(0, cut), parts.view().range(0, cut));
      gelu_forward(device_.compute(), x.view().range(cut, 331), parts.view().range(cut, 331));
      ASSERT_EQ(parts.bytes(), whole.bytes()) << cut;
    }
  }
}

TEST_F(Pointwise, GeluGradient) {
  const Shape shape{7, 43};
  HostTensor x(shape, random_values(301, 2, 4));
  HostTensor weights(shape, random_values(301, 3));
  HostTensor y(shape, DType::f32);
  HostTensor dx(shape, DType::f32);
  gelu_backward(device_.compute(), x.view(), weights.view(), dx.view());
  const auto loss = [&] {
    gelu_forward(device_.compute(), x.view(), y.view());
    return test::weighted_sum(y.f32(), weights.f32());
  };
  test::expect_gradient(x.f32(), dx.f32(), loss, {.samples = 301});
  gelu_backward(device_.compute(), x.view(), weights.view(), weights.view());
  EXPECT_EQ(weights.bytes(), dx.bytes());
}

TEST_F(Pointwise, SwigluMatchesReference) {
  for (const DType type : {DType::f32, DType::bf16}) {
    HostTensor x({7, 86}, random_values(602, 4, 5), type);
    HostTensor y({7, 43}, type);
    swiglu_forward(device_.compute(), x.view(), y.view());
    const std::vector<float> in = x.values();
    std::vector<float> expected(301);
    for (size_t r = 0; r < 7; ++r)
      for (size_t i = 0; i < 43; ++i)
        expected[r * 43 + i] = static_cast<float>(exact_silu(in[r * 86 + i]) * in[r * 86 + 43 + i]);
    expect_close(y.values(), expected, type == DType::bf16 ? 4e-3 : 5e-7, "swiglu");
  }
}

TEST_F(Pointwise, SwigluGradient) {
  HostTensor x({7, 86}, random_values(602, 5, 4));
  HostTensor weights({7, 43}, random_values(301, 6));
  HostTensor y({7, 43}, DType::f32);
  HostTensor dx({7, 86}, DType::f32);
  swiglu_backward(device_.compute(), x.view(), weights.view(), dx.view());
  const auto loss = [&] {
    swiglu_forward(device_.compute(), x.view(), y.view());
    return test::weighted_sum(y.f32(), weights.f32());
  };
  test::expect_gradient(x.f32(), dx.f32(), loss, {.samples = 602});
  swiglu_backward(device_.compute(), x.view(), weights.view(), x.view());
  EXPECT_EQ(x.bytes(), dx.bytes());
}

// Columns of wider matrices, as when gate and up are pieces of a larger buffer.
TEST_F(Pointwise, SwigluOfStridedMatrices) {
  HostTensor dense({5, 22}, random_values(110, 7));
  HostTensor wide({5, 30}, std::vector<float>(150, -7.0f));
  for (size_t r = 0; r < 5; ++r)
    for (size_t i = 0; i < 22; ++i) wide.f32()[r * 30 + 3 + i] = dense.f32()[r * 22 + i];
  HostTensor y({5, 11}, DType::f32);
  HostTensor wide_y({5, 30}, std::vector<float>(150, -7.0f));
  swiglu_forward(device_.compute(), dense.view(), y.view());
  swiglu_forward(device_.compute(), Matrix(wide.view()).columns(3, 25),
                 Matrix(wide_y.view()).columns(9, 20));
  for (size_t r = 0; r < 5; ++r)
    for (size_t i = 0; i < 30; ++i)
      ASSERT_EQ(wide_y.f32()[r * 30 + i], i >= 9 && i < 20 ? y.f32()[r * 11 + i - 9] : -7.0f);
}

TEST_F(Pointwise, Bf16GradientsAreCloseToF32) {
  std::vector<float> gelu_results[2];
  std::vector<float> swiglu_results[2];
  const std::vector<float> xs = HostTensor({7, 86}, random_values(602, 8, 3), DType::bf16).values();
  const std::vector<float> ds = HostTensor({7, 86}, random_values(602, 9), DType::bf16).values();
  for (const DType type : {DType::f32, DType::bf16}) {
    HostTensor x({7, 86}, xs, type);
    HostTensor d({7, 86}, ds, type);
    HostTensor dx({7, 86}, type);
    gelu_backward(device_.compute(), x.view(), d.view(), dx.view());
    gelu_results[type == DType::bf16] = dx.values();
    swiglu_backward(device_.compute(), x.view(), Matrix(d.view()).columns(0, 43), dx.view());
    swiglu_results[type == DType::bf16] = dx.values();
  }
  expect_close(gelu_results[1], gelu_results[0], 4e-3, "gelu");
  expect_close(swiglu_results[1], swiglu_results[0], 4e-3, "swiglu");
}

// In this order, in f32, rounded once: other orders and sums that are rounded on the way have other
// bits here.
TEST_F(Pointwise, PartsAreSummedInOrder) {
  for (const size_t count : {size_t{1}, size_t{2049}, size_t{20011}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      std::vector<float> values = random_values(3 * count, 5, 2);
      for (size_t i = 0; i < count; ++i) {
        values[i] += 3e7f;
        values[2 * count + i] -= 3e7f;
      }
      const auto n = static_cast<int64_t>(count);
      HostTensor parts({3, n}, values, type);
      HostTensor sum({n}, type);
      sum_parts(device_.compute(), parts.view(), sum.view());
      const std::vector<float> x = parts.values(), have = sum.values();
      for (size_t i = 0; i < count; ++i) {
        const float total = (x[i] + x[count + i]) + x[2 * count + i];
        const float want = type == DType::bf16 ? from_bf16(to_bf16(total)) : total;
        ASSERT_EQ(have[i], want) << name_of(type) << " " << i;
      }
    }
  }
  HostTensor parts({2, 7}, DType::f32), sum({4}, DType::f32), half({7}, DType::bf16);
  EXPECT_THROW(sum_parts(device_.compute(), parts.view(), sum.view()), Error);
  EXPECT_THROW(sum_parts(device_.compute(), parts.view(), half.view()), Error);
}

TEST_F(Pointwise, WrongShapesAreRefused) {
  HostTensor x({7, 86}, random_values(602, 8));
  HostTensor y({7, 42}, DType::f32);
  HostTensor half({7, 43}, DType::bf16);
  EXPECT_THROW(swiglu_forward(device_.compute(), x.view(), y.view()), Error);
  EXPECT_THROW(swiglu_forward(device_.compute(), x.view(), half.view()), Error);
  EXPECT_THROW(gelu_forward(device_.compute(), x.view(), y.view()), Error);
}

}  // namespace
}  // namespace trireme
