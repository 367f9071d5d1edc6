// Writes a file in pieces, large ones past the page cache: they take no host memory beyond the
// buffers here, and their errors are those of the disk, not of a later sync. Two pieces are on
// their way while the caller brings the next one. Blocks that a piece does not fill, and everything
// where the file system takes no direct writes, go through the page cache.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "io/beside.hpp"
#include "io/failure.hpp"
#include "io/posix_file.hpp"

namespace trireme::io {

class DirectWriter {
 public:
  static constexpr int64_t kLargestPiece = int64_t{4} << 20;

  // `file` is open for writing and outlives this; `directly` false: all through the page cache.
  DirectWriter(const PosixFile& file, bool directly);
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  // At most kLargestPiece bytes, which may change once it returns. Throws its own failure or an
  // earlier one.
  void write(std::span<const std::byte> bytes, int64_t offset);
  // Waits for all pieces. Throws the first failure.
  void finish();

 private:
  static constexpr size_t kLanes = 2, kBuffers = 2;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  struct Lane {
    std::array<std::unique_ptr<std::byte[], Free>, kBuffers> buffers;
    size_t next = 0;
    Beside beside;  // last: its jobs read the buffers
  };

  void start(std::span<const std::byte> blocks, int64_t offset);
  void write_blocks(std::span<const std::byte> blocks, int64_t offset);
  void throw_failure();

  const PosixFile& file_;
  const std::optional<PosixFile> direct_;
  std::atomic<bool> refused_ = false;
  std::mutex mutex_;
  std::optional<Failure> failure_;  // of a piece on its way
  size_t pieces_ = 0;
  std::array<Lane, kLanes> lanes_;  // last: their jobs use the others
};

}  // namespace trireme::io
