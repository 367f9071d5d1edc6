#include "app/bench_timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "app/bench_data.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::app {

double seconds_a_call(Stream& stream, const std::function<void()>& call, int64_t calls) {
  stream.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  stream.synchronize();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / static_cast<double>(calls);
}

int64_t calls_of_a_batch(Stream& stream, const std::function<void()>& call) {
  call();
  int64_t calls = 1;
  for (;;) {
    const auto measure = [&] {
      return seconds_a_call(stream, call, calls) * static_cast<double>(calls);
    };
    double batch = measure();
    // Once more, so that one interruption does not pass for a long call.
    if (kBatchSeconds < batch && batch < 5 * kBatchSeconds) batch = std::min(batch, measure());
    if (batch > kBatchSeconds) return calls;
    const double factor = std::min(1.3 * kBatchSeconds / std::max(batch, 1e-7), 100.0);
    calls = static_cast<int64_t>(std::ceil(static_cast<double>(calls) * std::max(factor, 1.2)));
  }
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

TensorView Anchor::take(Shape shape, DType type) {
  buffers_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(type), Memory::device);
  const TensorView view{buffers_.back().data(), shape, type};
  fill_random(*stream_, view, buffers_.size());
  return view;
}

Anchor Anchor::copy(Device& device) {
  const int64_t count = device_memory_is_host() ? int64_t{1} << 24 : int64_t{1} << 28;
  Anchor anchor(device, fmt::format("copy of {} MiB", count / (1 << 18)));
  const TensorView from = anchor.take({count}, DType::f32);
  const TensorView to = anchor.take({count}, DType::f32);
  anchor.call_ = [stream = anchor.stream_, from, to] { trireme::copy(*stream, from, to); };
  anchor.work_ = 2 * static_cast<double>(from.bytes());
  return anchor;
}

Anchor Anchor::product(Device& device, DType type, int64_t n) {
  if (n == 0) n = device_memory_is_host() ? 2048 : 8192;
  Anchor anchor(device, fmt::format("{0} product of {1} x {1} x {1}", name_of(type), n));
  Gemm call{.a = anchor.take({n, n}, type), .b = anchor.take({n, n}, type)};
  call.c = anchor.take({n, n}, type);
  call.transpose_b = true;
  anchor.call_ = [stream = anchor.stream_, call] { gemm(*stream, call); };
  anchor.work_ = 2 * std::pow(static_cast<double>(n), 3);
  return anchor;
}

double Anchor::rate() {
  if (calls_ == 0) calls_ = calls_of_a_batch(*stream_, call_);
  return work_ / seconds_a_call(*stream_, call_, calls_);
}

}  // namespace trireme::app
