// Memory, streams and events: one declaration, two definitions (`cpu/`, `cuda/`).
//
// Everything here lives in the inline namespace of the backend, so that a program linked against
// the wrong twin does not link. On the CPU a stream runs each operation at once; only communication
// can be pending on it. Nothing here is shared between threads except where it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/tensor.hpp"

namespace trireme::inline TRIREME_BACKEND {

class Stream;

// "cpu" or "cuda".
std::string_view backend_name();
// True where host code may read and write the memory of `Memory::device` buffers.
bool device_memory_is_host();

// Marks a point in the work of a stream. Move-only; empty events are complete.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  struct State;
  State* state() const { return state_.get(); }

 private:
  friend class Stream;
  std::unique_ptr<State> state_;
};

// In-order work. Owned by `Device`; other code holds references.
class Stream {
 public:
  struct State;
  explicit Stream(std::unique_ptr<State> state);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Marks everything issued so far; re-uses the event's resources.
  void record(Event& event);
  // Work issued from now on starts after `event`. On the CPU it completes pending communication.
  void wait(const Event& event);
  // Blocks the host until the stream is empty.
  void synchronize();
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// Adds up the times that streams spend between `start` and `stop`: by the host's clock on the CPU;
// on devices by marks in the stream itself, so that nothing waits before `seconds`. Off until it is
// switched on: then calls cost nothing. One pair at a time. Move-only.
class StreamTimer {
 public:
  StreamTimer();
  ~StreamTimer();
  StreamTimer(StreamTimer&&) noexcept;
  StreamTimer& operator=(StreamTimer&&) noexcept;
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  // Forgets what was measured.
  void switch_on(bool on);
  void start(Stream& stream);
  void stop(Stream& stream);
  // Since it was switched on. Blocks until the streams have passed the last `stop`.
  double seconds();
  // Makes `stream` wait for `event` and counts the time that it stands still.
  void wait(Stream& stream, const Event& event) {
    start(stream);
    stream.wait(event);
    stop(stream);
  }

 private:
  struct State;
  std::unique_ptr<State> state_;  // null while it is off
};

enum class Memory : uint8_t {
  device,  // where operations run
  pinned,  // host memory that the device copies from and to without staging
};

// Owns one block of memory, 256-byte aligned, not initialised. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(size_t bytes, Memory where);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Memory where_ = Memory::device;
};

// One purpose of an arena's memory, in bytes, padding included.
struct ArenaLine {
  std::string purpose;
  size_t bytes = 0;
};

// Bump allocation over one buffer. A *dry* arena has no memory: it hands out views with null data
// and counts, so that the code that takes the memory is also the code that sizes it.
class Arena {
 public:
  static constexpr size_t kAlignment = 256;

  static Arena dry() { return Arena(); }
  // Exactly `bytes`, which a dry walk counted.
  static Arena real(size_t bytes);

  bool is_dry() const { return dry_; }
  // Throws Error(internal) when a real arena is exhausted: the walk and the run differ.
  TensorView take(Shape shape, DType dtype, std::string_view purpose);
  size_t used_bytes() const { return used_; }
  size_t high_water_bytes() const { return high_water_; }
  // Start of scratch whose memory is used again after `rewind`.
  size_t mark() const { return used_; }
  void rewind(size_t mark);
  // Bytes by purpose at the moment of the high-water mark, in order of first use: they add up to
  // it.
  const std::vector<ArenaLine>& lines() const { return lines_; }

 private:
  Arena() = default;
  Buffer buffer_;
  bool dry_ = true;
  size_t used_ = 0;
  size_t high_water_ = 0;
  struct Piece {
    size_t end = 0;   // used bytes after it was taken
    size_t line = 0;  // index in lines_ and live_
  };
  std::vector<Piece> pieces_;  // what is taken now, in order
  std::vector<size_t> live_;   // bytes taken now, by line
  std::vector<ArenaLine> lines_;
};

struct DeviceOptions {
  int node_rank = 0;   // this rank among the ranks of its host
  int node_ranks = 1;  // ranks on this host
  int ranks = 1;       // ranks of the whole run
  int threads = 0;     // CPU threads; 0: max(1, cores this process may use / ranks sharing them)
  // f32 matrix products may round their inputs to tf32 (precision.compute = tf32); no effect on the
  // CPU.
  bool allow_tf32 = false;
};

// One device and its streams. Not movable: streams refer to it.
class Device {
 public:
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Stream& compute();        // operations
  Stream& communication();  // gradient collectives that overlap with compute
  Stream& copy();           // host copies
  // A further stream of its own (one for each pipeline edge and direction). Owned by the device.
  Stream& new_stream(std::string_view name);
  // "2 threads on Intel Xeon" or "NVIDIA H200, device 0 of 1, shared by 2 ranks".
  std::string description() const;
  // Free and total bytes of the memory that operations run in.
  size_t free_bytes() const;
  size_t total_bytes() const;
  // Peak dense matrix rate in FLOP/s for the type, from the vendor's table; 0 where unknown.
  double peak_flops(DType type) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Copies between views of equal type and element count, in stream order. Overlap is not allowed.
void copy(Stream& stream, TensorView from, TensorView to);
void copy_to_host(Stream& stream, TensorView from, std::span<std::byte> to);
void copy_to_device(Stream& stream, std::span<const std::byte> from, TensorView to);
void fill_zero(Stream& stream, TensorView view);

}  // namespace trireme::inline TRIREME_BACKEND
