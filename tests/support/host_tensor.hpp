// Owning tensors on the host for tests of operations.
//
// Outputs start as NaN, so that an element that an operation forgets to write fails the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "trireme/base/tensor.hpp"

namespace trireme::test {

class HostTensor {
 public:
  // An output: every element is NaN (a negative number for i32).
  HostTensor(Shape shape, DType type) : shape_(shape), type_(type) {
    memory_.resize(static_cast<size_t>(shape.elements()) * size_of(type), std::byte{0xff});
  }
  // Values rounded to the type.
  HostTensor(Shape shape, std::span<const float> values, DType type = DType::f32)
      : HostTensor(shape, type) {
    require(static_cast<int64_t>(values.size()) == shape.elements(), ExitCode::internal,
            "{} values for shape {}", values.size(), shape.text());
    for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }
  HostTensor(Shape shape, const std::vector<int32_t>& values) : HostTensor(shape, DType::i32) {
    require(static_cast<int64_t>(values.size()) == shape.elements(), ExitCode::internal,
            "{} values for shape {}", values.size(), shape.text());
    std::memcpy(memory_.data(), values.data(), memory_.size());
  }
  static HostTensor zeros(Shape shape, DType type = DType::f32) {
    HostTensor tensor(shape, type);
    std::fill(tensor.memory_.begin(), tensor.memory_.end(), std::byte{0});
    return tensor;
  }

  TensorView view() { return {memory_.data(), shape_, type_}; }
  std::span<float> f32() { return view().host<float>(); }

  // f32 or bf16 elements as f32.
  std::vector<float> values() const {
    std::vector<float> result(static_cast<size_t>(shape_.elements()));
    for (size_t i = 0; i < result.size(); ++i) result[i] = get(i);
    return result;
  }
  const std::vector<std::byte>& bytes() const { return memory_; }

 private:
  float get(size_t i) const {
    if (type_ == DType::bf16) {
      uint16_t bits = 0;
      std::memcpy(&bits, memory_.data() + 2 * i, 2);
      return from_bf16(bits);
    }
    float value = 0;
    std::memcpy(&value, memory_.data() + 4 * i, 4);
    return value;
  }
  void set(size_t i, float value) {
    if (type_ == DType::bf16) {
      const uint16_t bits = to_bf16(value);
      std::memcpy(memory_.data() + 2 * i, &bits, 2);
    } else {
      std::memcpy(memory_.data() + 4 * i, &value, 4);
    }
  }

  Shape shape_;
  DType type_;
  std::vector<std::byte> memory_;
};

// Every element within `tolerance` * (1 + |expected|); NaN never passes.
inline void expect_close(std::span<const float> got, std::span<const float> expected,
                         double tolerance, const char* name) {
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound = tolerance * (1 + std::abs(static_cast<double>(expected[i])));
    ASSERT_NEAR(got[i], expected[i], bound) << name << " element " << i;
  }
}

}  // namespace trireme::test
