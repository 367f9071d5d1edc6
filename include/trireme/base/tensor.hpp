// Views of tensors: what a piece of memory means, never who frees it.
//
// Views are row-major and dense; `Matrix` adds a row stride. The element type is a run-time field.
// A view may point to host or device memory: the code that made it knows which.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "trireme/base/error.hpp"

namespace trireme {

// f16, e4m3, e5m2, u8 and i64 are reserved names.
enum class DType : uint8_t { f32, bf16, i32, u16 };

constexpr size_t size_of(DType type) {
  return type == DType::f32 || type == DType::i32 ? 4 : 2;
}
const char* name_of(DType type);

// Up to four extents. dims == 0 is the shape of an empty view (no elements), not of a scalar.
struct Shape {
  std::array<int64_t, 4> extent{};
  int dims = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);
  int64_t operator[](int i) const { return extent[static_cast<size_t>(i)]; }
  int64_t elements() const;      // checked product; 0 for dims == 0
  int64_t row_elements() const;  // product of all extents but the first
  bool operator==(const Shape& other) const;
  std::string text() const;  // "[3, 4]"
};

struct TensorView {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }
  bool empty() const { return elements() == 0; }
  // Rows [first, last) along dimension 0. Throws Error(internal) when out of range.
  TensorView rows(int64_t first, int64_t last) const;
  // Elements [first, last) of the flattened view, as one dimension.
  TensorView range(int64_t first, int64_t last) const;
  // Same memory, other extents with the same element count (checked).
  TensorView as(Shape other) const;
  // Typed pointer; the element type is checked for f32 (float), i32 (int32_t), u16/bf16 (uint16_t).
  template <class T>
  T* ptr() const;
  // Host memory only.
  template <class T>
  std::span<T> host() const {
    return {ptr<T>(), static_cast<size_t>(elements())};
  }
};

template <class T>
T* TensorView::ptr() const {
  static_assert(sizeof(T) == 4 || sizeof(T) == 2);
  require(sizeof(T) == size_of(dtype), ExitCode::internal, "view of {} read with {}-byte elements",
          name_of(dtype), sizeof(T));
  return reinterpret_cast<T*>(data);
}

// A matrix [rows, cols] whose rows are `stride` elements apart: packed q, k, v are three of these.
struct Matrix {
  std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  DType dtype = DType::f32;

  Matrix() = default;
  Matrix(std::byte* d, int64_t r, int64_t c, int64_t s, DType t)
      : data(d), rows(r), cols(c), stride(s), dtype(t) {}
  // A dense view as [extent 0, product of the others].
  Matrix(const TensorView& view);  // NOLINT(google-explicit-constructor): a view is a matrix
  Matrix columns(int64_t first, int64_t last) const;
  Matrix row_range(int64_t first, int64_t last) const;
  bool empty() const { return rows == 0 || cols == 0; }
};

// Where a local piece sits in a whole logical tensor: the only thing that crosses from model and
// optimizer to files. `origin` and `local.shape` have the dims of `whole`.
struct GlobalSlice {
  std::string name;
  Shape whole;
  Shape origin;
  TensorView local;
};

// Brain floating point: the high half of an f32, rounded to nearest even; NaN stays NaN.
inline uint16_t to_bf16(float value) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float from_bf16(uint16_t value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16);
}

}  // namespace trireme
