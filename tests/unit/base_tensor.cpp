// Views, shapes and storage rounding.
#include "trireme/base/tensor.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace trireme {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TensorView view_of(std::vector<float>& values, Shape shape) {
  return {reinterpret_cast<std::byte*>(values.data()), shape, DType::f32};
}

void expect_internal(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    FAIL() << "no error; expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().elements(), 0);
  EXPECT_EQ(Shape({7}).elements(), 7);
  EXPECT_EQ(Shape({7}).row_elements(), 1);
  EXPECT_EQ(Shape({7, 3, 5}).elements(), 105);
  EXPECT_EQ(Shape({7, 3, 5}).row_elements(), 15);
  EXPECT_EQ(Shape({0, 3}).elements(), 0);
  EXPECT_EQ(Shape({0, 3}).row_elements(), 3);
  EXPECT_EQ(Shape({3, 4, 2}).text(), "[3, 4, 2]");
  EXPECT_EQ(Shape().text(), "[]");
}

TEST(Shape, ComparesDimensionsToo) {
  EXPECT_TRUE(Shape({3, 4}) == Shape({3, 4}));
  EXPECT_FALSE(Shape({3, 4}) == Shape({4, 3}));
  EXPECT_FALSE(Shape({3}) == Shape({3, 1}));
  EXPECT_FALSE(Shape() == Shape({0}));
}

TEST(Shape, RefusesNegativeExtentsAndOverflow) {
  expect_internal([] { Shape({3, -1}); }, "negative extent -1");
  expect_internal([] { Shape({1, 2, 3, 4, 5}); }, "at most 4");
  EXPECT_THROW((void)Shape({int64_t{1} << 40, int64_t{1} << 40}).elements(), Error);
}

TEST(TensorView, RowsShareTheMemory) {
  std::vector<float> values(7 * 3);
  const TensorView view = view_of(values, {7, 3});
  const TensorView rows = view.rows(2, 5);
  EXPECT_EQ(rows.shape.text(), "[3, 3]");
  EXPECT_EQ(rows.ptr<float>(), values.data() + 6);
  EXPECT_EQ(rows.bytes(), 36u);
  EXPECT_TRUE(view.rows(7, 7).empty());
  expect_internal([&] { (void)view.rows(3, 8); }, "rows 3..8 of a view of shape [7, 3]");
  expect_internal([&] { (void)view.rows(3, 2); }, "rows 3..2");
  expect_internal([&] { (void)view.rows(-1, 2); }, "rows -1..2");
  expect_internal([] { (void)TensorView().rows(0, 0); }, "[]");
}

TEST(TensorView, RangeIsFlat) {
  std::vector<float> values(7 * 3);
  const TensorView view = view_of(values, {7, 3});
  const TensorView range = view.range(4, 21);
  EXPECT_EQ(range.shape.text(), "[17]");
  EXPECT_EQ(range.ptr<float>(), values.data() + 4);
  expect_internal([&] { (void)view.range(4, 22); }, "elements 4..22");
}

TEST(TensorView, DryViewsStayDry) {
  const TensorView dry{nullptr, {7, 3}, DType::bf16};
  EXPECT_EQ(dry.bytes(), 42u);
  EXPECT_EQ(dry.rows(3, 5).data, nullptr);
  EXPECT_EQ(dry.range(3, 5).data, nullptr);
  EXPECT_EQ(Matrix(dry).columns(1, 2).data, nullptr);
}

TEST(TensorView, AsKeepsTheElementCount) {
  std::vector<float> values(12);
  const TensorView view = view_of(values, {3, 4});
  EXPECT_EQ(view.as({2, 6}).shape.text(), "[2, 6]");
  EXPECT_EQ(view.as({2, 6}).data, view.data);
  expect_internal([&] { (void)view.as({5, 2}); }, "shape [3, 4] viewed as [5, 2]");
}

TEST(TensorView, PointersCheckTheElementSize) {
  std::vector<float> values(12);
  TensorView view = view_of(values, {12});
  view.host<float>()[11] = 4;
  EXPECT_EQ(values[11], 4);
  expect_internal([&] { (void)view.ptr<uint16_t>(); }, "view of f32 read with 2-byte elements");
  view.dtype = DType::bf16;
  expect_internal([&] { (void)view.ptr<float>(); }, "view of bf16 read with 4-byte elements");
}

TEST(Matrix, ColumnsKeepTheStride) {
  std::vector<float> values(5 * 12);
  const Matrix packed = view_of(values, {5, 3, 4});
  EXPECT_EQ(packed.rows, 5);
  EXPECT_EQ(packed.cols, 12);
  const Matrix k = packed.columns(4, 8);
  EXPECT_EQ(k.cols, 4);
  EXPECT_EQ(k.stride, 12);
  EXPECT_EQ(reinterpret_cast<float*>(k.data), values.data() + 4);
  EXPECT_TRUE(k.columns(2, 2).empty());
  EXPECT_TRUE(Matrix(TensorView()).empty());
  expect_internal([&] { (void)packed.columns(4, 13); }, "columns 4..13 of a matrix with 12");
}

TEST(Matrix, RowsOfColumnsKeepTheStride) {
  std::vector<float> values(5 * 12);
  const Matrix k = Matrix(view_of(values, {5, 3, 4})).columns(4, 8);
  const Matrix some = k.row_range(2, 4);
  EXPECT_EQ(some.rows, 2);
  EXPECT_EQ(some.cols, 4);
  EXPECT_EQ(some.stride, 12);
  EXPECT_EQ(reinterpret_cast<float*>(some.data), values.data() + 2 * 12 + 4);
  EXPECT_TRUE(k.row_range(5, 5).empty());
  EXPECT_EQ(Matrix(nullptr, 5, 4, 12, DType::f32).row_range(1, 3).data, nullptr);
  expect_internal([&] { (void)k.row_range(3, 6); }, "rows 3..6 of a matrix with 5");
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(size_of(DType::u16), 2u);
  EXPECT_STREQ(name_of(DType::bf16), "bf16");
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f), 0x3f80);       // half way: to even, down
  EXPECT_EQ(to_bf16(1.0f + 0x1.8p-7f), 0x3f82);     // half way: to even, up
  EXPECT_EQ(to_bf16(1.0f + 0x1.0002p-8f), 0x3f81);  // just above half way
  EXPECT_EQ(to_bf16(-1.0f - 0x1.0002p-8f), 0xbf81);
  EXPECT_EQ(to_bf16(0x1.ffp-1f), 0x3f80);  // a carry into the exponent
  EXPECT_EQ(to_bf16(-0.0f), 0x8000);
  EXPECT_EQ(to_bf16(0x1p-133f), 0x0001);  // smallest subnormal of bf16
  EXPECT_EQ(to_bf16(0x1p-134f), 0x0000);
}

TEST(Bf16, KeepsInfinityAndNan) {
  EXPECT_EQ(to_bf16(kInfinity), 0x7f80);
  EXPECT_EQ(to_bf16(-kInfinity), 0xff80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(kNan))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(-kNan))));
  // NaNs whose payload is in the bits that are cut off, and one that rounding would carry to -0.
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0xffffffffu)))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7fffffffu)))));
}

TEST(Bf16, EveryValueComesBack) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const uint16_t value = static_cast<uint16_t>(bits);
    if (std::isnan(from_bf16(value))) continue;
    ASSERT_EQ(to_bf16(from_bf16(value)), value);
  }
}

}  // namespace
}  // namespace trireme
