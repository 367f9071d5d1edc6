// Storage types of activations as traits: kernels are templates on one, accumulate in f32, and are
// chosen once a call by `with_storage`. Also the checks that every operation shares.
#pragma once

#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/tensor.hpp"

namespace trireme::inline TRIREME_BACKEND {

struct F32 {
  using Element = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
};

struct Bf16 {
  using Element = uint16_t;
  static float load(uint16_t value) { return from_bf16(value); }
  // As `to_bf16`, without a branch, so that loops vectorise.
  static uint16_t store(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

// Calls `kernel(F32{})` or `kernel(Bf16{})`. Throws Error(internal) for any other type.
template <class Kernel>
void with_storage(DType type, const char* operation, Kernel&& kernel) {
  switch (type) {
    case DType::f32:
      return std::forward<Kernel>(kernel)(F32{});
    case DType::bf16:
      return std::forward<Kernel>(kernel)(Bf16{});
    default:
      fail(ExitCode::internal, "{}: element type {}; use f32 or bf16", operation, name_of(type));
  }
}

// Throws Error(internal) unless `view` has this shape and type. `what` is "operation: argument".
inline void require_view(const TensorView& view, const Shape& shape, DType type, const char* what) {
  require(view.shape == shape && view.dtype == type, ExitCode::internal,
          "{} is {} {}, expected {} {}", what, name_of(view.dtype), view.shape.text(),
          name_of(type), shape.text());
}

// Same element count and type; the extents may be grouped differently.
inline void require_like(const TensorView& view, const TensorView& other, const char* what) {
  require(view.elements() == other.elements() && view.dtype == other.dtype, ExitCode::internal,
          "{} is {} {}, expected {} elements of {}", what, name_of(view.dtype), view.shape.text(),
          other.elements(), name_of(other.dtype));
}

}  // namespace trireme::inline TRIREME_BACKEND
