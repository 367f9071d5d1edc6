#include "trireme/io/float_type.hpp"

#include <cmath>
#include <cstring>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

template <FloatType kType>
float load(const std::byte* at) {
  if constexpr (kType == FloatType::f32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  } else {
    uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return kType == FloatType::bf16 ? from_bf16(bits) : from_f16(bits);
  }
}

template <FloatType kType>
bool store(float value, std::byte* at) {
  if constexpr (kType == FloatType::f32) {
    std::memcpy(at, &value, sizeof(value));
    return true;
  } else {
    const uint16_t bits = kType == FloatType::bf16 ? to_bf16(value) : to_f16(value);
    std::memcpy(at, &bits, sizeof(bits));
    return std::isinf(value) || !std::isinf(load<kType>(at));
  }
}

template <FloatType kFrom, FloatType kTo>
int64_t convert(const std::byte* source, std::byte* target, int64_t step, int64_t count) {
  int64_t lost = 0;
  const auto stride = static_cast<size_t>(step) * size_of(kTo);
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* from = source + static_cast<size_t>(i) * size_of(kFrom);
    std::byte* to = target + static_cast<size_t>(i) * stride;
    if constexpr (kFrom == kTo) {
      std::memcpy(to, from, size_of(kFrom));
    } else {
      lost += store<kTo>(load<kFrom>(from), to) ? 0 : 1;
    }
  }
  return lost;
}

template <FloatType kFrom>
int64_t convert_from(const std::byte* source, FloatType to, std::byte* target, int64_t step,
                     int64_t count) {
  switch (to) {
    case FloatType::f32:
      return convert<kFrom, FloatType::f32>(source, target, step, count);
    case FloatType::bf16:
      return convert<kFrom, FloatType::bf16>(source, target, step, count);
    case FloatType::f16:
      return convert<kFrom, FloatType::f16>(source, target, step, count);
  }
  return 0;
}

}  // namespace

const char* safetensors_name(FloatType type) {
  return type == FloatType::f32 ? "F32" : type == FloatType::bf16 ? "BF16" : "F16";
}

const char* torch_name(FloatType type) {
  return type == FloatType::f32 ? "float32" : type == FloatType::bf16 ? "bfloat16" : "float16";
}

std::optional<FloatType> float_type_of(std::string_view name) {
  for (const FloatType type : {FloatType::f32, FloatType::bf16, FloatType::f16})
    if (name == safetensors_name(type)) return type;
  return std::nullopt;
}

std::optional<FloatType> torch_type_of(std::string_view name) {
  for (const FloatType type : {FloatType::f32, FloatType::bf16, FloatType::f16})
    if (name == torch_name(type)) return type;
  return std::nullopt;
}

FloatType float_type_of(DType type, const std::string& name) {
  require(type == DType::f32 || type == DType::bf16, ExitCode::bad_data,
          "{} holds {}: weights are f32 or bf16", name, name_of(type));
  return type == DType::f32 ? FloatType::f32 : FloatType::bf16;
}

float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal numbers: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign == 0 ? value : -value;
  }
  const uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;
  return __builtin_bit_cast(float, sign | (wide << 23) | (fraction << 13));
}

uint16_t to_f16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: in steps of 2^-24; the addition rounds
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

int64_t convert_floats(FloatType from, std::span<const std::byte> source, FloatType to,
                       std::byte* target, int64_t target_step, int64_t count) {
  require(static_cast<int64_t>(source.size() / size_of(from)) >= count, ExitCode::internal,
          "{} bytes given for {} elements", source.size(), count);
  if (from == to && target_step == 1) {
    std::memcpy(target, source.data(), static_cast<size_t>(count) * size_of(from));
    return 0;
  }
  switch (from) {
    case FloatType::f32:
      return convert_from<FloatType::f32>(source.data(), to, target, target_step, count);
    case FloatType::bf16:
      return convert_from<FloatType::bf16>(source.data(), to, target, target_step, count);
    case FloatType::f16:
      return convert_from<FloatType::f16>(source.data(), to, target, target_step, count);
  }
  return 0;
}

}  // namespace trireme
