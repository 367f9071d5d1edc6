// What a CPU stream holds: communication that was started and is not yet complete, and the work
// memory of the operations issued on it. Private to device/cpu, comm/cpu and ops/cpu.
//
// Order: every operation that computes runs at once. A pending operation names the memory it reads
// and writes; before another one is started, conflicting ones are completed (`finish_conflicting`),
// so that the stream behaves as if in order while independent communication overlaps. Code that
// computes on memory of a pending operation first calls `Stream::wait` or `Stream::synchronize`:
// nothing checks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/device/device.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Bytes [first, first + bytes) that an operation reads, or reads and writes.
struct MemoryRange {
  const std::byte* first = nullptr;
  size_t bytes = 0;
  bool written = false;
};

// True where the two share a byte and at least one of them writes it.
bool conflict(const MemoryRange& a, const MemoryRange& b);

struct PendingOperation {
  std::function<void()>
      finish;                  // blocks until done; called at most once, not after `test` said done
  std::function<bool()> test;  // makes progress without blocking; true when done
  std::vector<MemoryRange> ranges;
};

struct Stream::State {
  explicit State(std::string_view stream_name)
      : name(stream_name), immediate(stream_name == "compute") {}

  // Completes, oldest first, the pending operations that conflict with `ranges`. To be called
  // before the operation that uses these ranges is started.
  void finish_conflicting(std::span<const MemoryRange> ranges);
  // Takes an operation that has been started. Throws Error(internal) if it conflicts with one that
  // is still pending. Returns its number: the mark up to which a wait must complete.
  uint64_t push(PendingOperation operation);
  // Completes every operation up to and including number `mark`. An operation whose `finish` throws
  // is no longer pending.
  void finish_through(uint64_t mark);
  void finish_all() { finish_through(last_number); }
  // Tests every pending operation once and drops those that are done; true when none is left.
  bool progress();
  // Number of the operation pushed last; 0 before the first.
  uint64_t tail() const { return last_number; }
  bool idle() const { return pending.empty(); }

  struct Entry {
    uint64_t number = 0;
    PendingOperation operation;
  };
  std::string name;
  bool immediate = false;     // the compute stream: communication completes before the call returns
  std::deque<Entry> pending;  // oldest first
  uint64_t last_number = 0;
  Buffer workspace;  // of the operations, taken at their first use on this stream
};

// The mark that an event holds. Valid while the device that owns the stream lives.
struct Event::State {
  Stream::State* stream = nullptr;
  uint64_t mark = 0;
};

}  // namespace trireme::inline TRIREME_BACKEND
