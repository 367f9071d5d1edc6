// Data of the benches: random and poisoned device memory, and what comes back to the host to be
// checked.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trireme/device/device.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::app {

// Uniform numbers in [low, high), f32 or bf16; they repeat after a prime number of elements, so
// that no two rows of a matrix are alike.
void fill_random(Stream& stream, TensorView view, uint64_t seed, float low = -1, float high = 1);

// Every element becomes a NaN (or -1), until an operation writes it.
void fill_poison(Stream& stream, TensorView view);

// Thrown where an operation's data does not fit in the memory that is free.
struct TooLarge {
  size_t bytes = 0, free_bytes = 0;
};

// Owns the memory of one operation at a time.
class BenchData {
 public:
  explicit BenchData(Device& device) : device_(device) {}
  Device& device() { return device_; }
  Stream& stream() { return device_.compute(); }

  // All of these throw TooLarge.
  TensorView random(Shape shape, DType type, float low = -1, float high = 1);
  TensorView poisoned(Shape shape, DType type);
  TensorView integers(std::span<const int32_t> values);
  // Uniform in [0, limit).
  TensorView random_integers(int64_t count, int64_t limit);
  TensorView bytes(std::span<const std::byte> values);
  StepState* state(const StepState& values);
  void clear();

 private:
  TensorView take(Shape shape, DType type);
  Device& device_;
  std::vector<Buffer> buffers_;
  uint64_t seed_ = 0;
};

// The step that the benches pretend to be in.
StepState bench_step_state();

// --- back to the host, as f32; f32 and bf16 views

std::vector<float> read(Stream& stream, TensorView view);
std::vector<int32_t> read_integers(Stream& stream, TensorView view);
// Calls `use` with every row in order, a bounded piece of the matrix at a time.
void for_each_row(Stream& stream, const Matrix& matrix,
                  const std::function<void(int64_t, std::span<const float>)>& use);
std::vector<float> read_row(Stream& stream, const Matrix& matrix, int64_t row);
enum class Axis : uint8_t { rows, columns };
// The rows or columns with the given numbers (ascending), one vector each.
std::vector<std::vector<float>> read_lines(Stream& stream, const Matrix& matrix, Axis axis,
                                           std::span<const int64_t> which);
// At most `most` numbers below `count`, ascending: the first, the last, and random ones.
std::vector<int64_t> samples(int64_t count, size_t most);

}  // namespace trireme::app
