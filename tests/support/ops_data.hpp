// Tensors for tests of operations: values in f32 or bf16 storage, strided matrices, poisoned
// outputs.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "support/finite_difference.hpp"
#include "trireme/base/tensor.hpp"

namespace trireme::test {

// A matrix whose rows are `stride` elements apart. The elements between the rows are poison and
// must stay so (`padding_untouched`).
class TestMatrix {
 public:
  TestMatrix(int64_t rows, int64_t cols, DType type, int64_t padding = 0)
      : rows_(rows), cols_(cols), stride_(cols + padding), type_(type) {
    bytes_.assign(static_cast<size_t>(rows * stride_) * size_of(type), std::byte{0xFF});
  }
  static TestMatrix random(int64_t rows, int64_t cols, DType type, uint32_t seed,
                           int64_t padding = 0, float scale = 1) {
    TestMatrix matrix(rows, cols, type, padding);
    matrix.set(random_values(static_cast<size_t>(rows * cols), seed, scale));
    return matrix;
  }

  Matrix view() { return {bytes_.data(), rows_, cols_, stride_, type_}; }
  TensorView tensor(Shape shape) {
    require(stride_ == cols_, ExitCode::internal, "a padded matrix is not a dense view");
    return TensorView{bytes_.data(), {rows_, cols_}, type_}.as(shape);
  }
  void set(std::span<const float> values) {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < cols_; ++c)
        put(r * stride_ + c, values[static_cast<size_t>(r * cols_ + c)]);
  }
  // Dense values.
  std::vector<float> get() const {
    std::vector<float> values;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < cols_; ++c) values.push_back(load(r * stride_ + c));
    return values;
  }
  bool padding_untouched() const {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = cols_; c < stride_; ++c)
        if (!std::isnan(load(r * stride_ + c))) return false;
    return true;
  }

 private:
  void put(int64_t i, float value) {
    std::byte* at = bytes_.data() + static_cast<size_t>(i) * size_of(type_);
    if (type_ == DType::f32) {
      std::memcpy(at, &value, sizeof(value));
    } else {
      const uint16_t half = to_bf16(value);
      std::memcpy(at, &half, sizeof(half));
    }
  }
  float load(int64_t i) const {
    const std::byte* at = bytes_.data() + static_cast<size_t>(i) * size_of(type_);
    float value = 0;
    uint16_t half = 0;
    if (type_ == DType::f32) {
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    std::memcpy(&half, at, sizeof(half));
    return from_bf16(half);
  }

  int64_t rows_, cols_, stride_;
  DType type_;
  std::vector<std::byte> bytes_;
};

// Largest difference, in units of the largest expected magnitude. Infinite where a value is not
// finite.
inline double scaled_error(std::span<const float> values, std::span<const double> expected) {
  double largest = 1e-30;
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double difference = std::abs(static_cast<double>(values[i]) - expected[i]);
    if (!(difference <= error)) error = difference;
    if (!std::isfinite(values[i])) return std::numeric_limits<double>::infinity();
  }
  return values.size() == expected.size() ? error / largest
                                          : std::numeric_limits<double>::infinity();
}

}  // namespace trireme::test
