// Memory that the indices of datasets lie in: of one process, or built by one process of a machine
// and mapped by the others there, so that it is there once however many ranks read.
//
// Shared memory has no name in any file system: it lives as long as a process maps it, nothing is
// left behind by a kill, and nothing can be stale. Processes that take the same arrays in the same
// order get the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

class IndexMemory {
 public:
  IndexMemory() = default;  // of this process alone
  // For a process that builds. Null where the system has no such memory.
  static std::shared_ptr<IndexMemory> shared();
  // What the process that built said by its handle(). Null where this process may not map it.
  static std::shared_ptr<IndexMemory> attach(const std::string& handle);
  ~IndexMemory();
  IndexMemory(const IndexMemory&) = delete;
  IndexMemory& operator=(const IndexMemory&) = delete;

  // True where take() gives arrays that another process has filled: they may only be read.
  bool built() const { return attached_; }
  // `count` elements, zero unless built(); valid as long as this object. Errors: io (no memory),
  // internal (another array than the one that was built).
  template <class T>
  std::span<T> take(int64_t count) {
    return {static_cast<T*>(take_bytes(count, sizeof(T))), static_cast<size_t>(count)};
  }
  int64_t bytes() const { return bytes_; }  // of all arrays
  std::string handle() const;

 private:
  struct Block {
    std::byte* data = nullptr;
    size_t size = 0;
  };
  void* take_bytes(int64_t count, size_t width);
  Block map(size_t size);

  int descriptor_ = -1;  // -1: memory of this process
  bool attached_ = false;
  std::vector<Block> blocks_;
  Block open_;         // small arrays are cut from it
  size_t offset_ = 0;  // in the shared memory, of the next block
  int64_t bytes_ = 0;
};

}  // namespace trireme
