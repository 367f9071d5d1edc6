// What a CUDA stream holds, for the folders that launch work on it. Private to device/cuda,
// ops/cuda and comm/cuda.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/check.hpp"
#include "trireme/device/device.hpp"

namespace trireme::inline TRIREME_BACKEND {

// What operations keep with a stream: library handles, plans and work memory, made at first use.
// One place each, so that finding it costs an index.
enum class Attachment : uint8_t { scratch, gemm, attention, results };
inline constexpr size_t kAttachments = 4;

// Something outside the device that work on it may be waiting for (a peer): asked while the host
// waits, so that a failure ends the wait.
class Watched {
 public:
  virtual ~Watched() = default;
  // Throws when it has failed. Does not block.
  virtual void check() = 0;
};

// Everything that the streams of one device may be waiting for. Whoever adds keeps what it added
// alive.
struct WatchList {
  std::vector<std::weak_ptr<Watched>> items;
  void add(const std::shared_ptr<Watched>& item);
  void check();
};

struct Stream::State {
  State(std::string_view stream_name, int device_index, int priority,
        std::shared_ptr<WatchList> watch_list);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The attachment of type T, made by `make()` (a std::shared_ptr<T>) at first use.
  template <class T, class Make>
  T& attached(Attachment place, const Make& make) {
    std::shared_ptr<void>& slot = attachments[static_cast<size_t>(place)];
    if (!slot) slot = make();
    return *static_cast<T*>(slot.get());
  }

  std::string name;
  int device = 0;
  std::shared_ptr<WatchList> watched;
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  size_t shared_memory_limit = 0;  // bytes a block may ask for
  bool allow_tf32 = false;         // f32 matrix products may round their inputs to tf32
  std::array<std::shared_ptr<void>, kAttachments> attachments;
};

struct Event::State {
  cudaEvent_t event = nullptr;
  State();
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

}  // namespace trireme::inline TRIREME_BACKEND
