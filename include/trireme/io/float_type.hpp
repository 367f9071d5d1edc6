// The floating-point types of model files of other programs, and conversion between them.
//
// Narrowing rounds to nearest, ties to even; widening is exact; NaN stays NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/tensor.hpp"

namespace trireme {

enum class FloatType : uint8_t { f32, bf16, f16 };

constexpr size_t size_of(FloatType type) {
  return type == FloatType::f32 ? 4 : 2;
}
// As safetensors ("F32", "BF16", "F16") and as transformers ("float32", "bfloat16", "float16").
const char* safetensors_name(FloatType type);
const char* torch_name(FloatType type);
std::optional<FloatType> float_type_of(std::string_view safetensors_name);
std::optional<FloatType> torch_type_of(std::string_view torch_name);
// What a checkpoint stores it as, without loss: f16 becomes f32.
constexpr DType stored_type(FloatType type) {
  return type == FloatType::bf16 ? DType::bf16 : DType::f32;
}
// Of an element type of a checkpoint. Throws Error(bad_data), with `name`, for integers.
FloatType float_type_of(DType type, const std::string& name);

float from_f16(uint16_t bits);
// Beyond 65504 it becomes infinite.
uint16_t to_f16(float value);

// `count` elements from `source` to `target`, `target_step` elements apart. Returns how many finite
// ones became infinite.
int64_t convert_floats(FloatType from, std::span<const std::byte> source, FloatType to,
                       std::byte* target, int64_t target_step, int64_t count);

}  // namespace trireme
