// Timing for the benches: batches of calls between two synchronisations, long enough that neither
// the clock nor the launch of a call counts, and medians over turns.
#pragma once

#include <functional>
#include <vector>

#include "trireme/device/device.hpp"

namespace trireme::app {

// Shortest batch that is timed, in seconds.
inline constexpr double kBatchSeconds = 0.02;
// Turns of operation and anchor.
inline constexpr int kTurns = 5;

// Seconds a call, over `calls` calls between two synchronisations of the stream.
double seconds_a_call(Stream& stream, const std::function<void()>& call, int64_t calls);

// Warms up and finds how many calls take longer than kBatchSeconds together.
int64_t calls_of_a_batch(Stream& stream, const std::function<void()>& call);

double median(std::vector<double> values);

// What an operation is compared with, turn by turn: the rate of a large copy (bytes read and bytes
// written, both counted) or of a large square product (2 n^3 FLOPs).
class Anchor {
 public:
  static Anchor copy(Device& device);
  // n: extent of the square matrices; 0: large enough for the device's full rate.
  static Anchor product(Device& device, DType type, int64_t n = 0);
  // Bytes/s or FLOP/s of one batch.
  double rate();
  // Bytes or FLOPs of one call.
  double work() const { return work_; }
  const std::string& name() const { return name_; }

 private:
  Anchor(Device& device, std::string name) : stream_(&device.compute()), name_(std::move(name)) {}
  TensorView take(Shape shape, DType type);

  Stream* stream_;
  std::string name_;
  std::vector<Buffer> buffers_;
  std::function<void()> call_;
  double work_ = 0;
  int64_t calls_ = 0;
};

}  // namespace trireme::app
