#include "io/direct_writer.hpp"

#include <cstring>
#include <new>

#include "trireme/base/error.hpp"

namespace trireme::io {
namespace {

// Below it a write through the page cache is as good.
constexpr int64_t kLeast = int64_t{256} << 10;

}  // namespace

DirectWriter::DirectWriter(const PosixFile& file, bool directly)
    : file_(file),
      direct_(directly ? PosixFile::open_to_write_directly(file.path()) : std::nullopt) {}

void DirectWriter::write(std::span<const std::byte> bytes, int64_t offset) {
  constexpr int64_t kBlock = PosixFile::kBlock;
  const int64_t end = offset + std::ssize(bytes);
  const int64_t first = (offset + kBlock - 1) / kBlock * kBlock, last = end / kBlock * kBlock;
  if (!direct_ || refused_ || last - first < kLeast) {
    file_.write_at(bytes, offset);
    file_.start_writing(offset, std::ssize(bytes));
    return;
  }
  const auto head = static_cast<size_t>(first - offset), tail = static_cast<size_t>(end - last);
  file_.write_at(bytes.first(head), offset);
  file_.write_at(bytes.last(tail), last);
  start(bytes.subspan(head, bytes.size() - head - tail), first);
}

void DirectWriter::start(std::span<const std::byte> blocks, int64_t offset) {
  require(std::ssize(blocks) <= kLargestPiece, ExitCode::internal, "a piece of {} bytes",
          blocks.size());
  Lane& lane = lanes_[pieces_++ % kLanes];
  lane.beside.wait_for_all_but(kBuffers - 1);
  throw_failure();
  auto& buffer = lane.buffers[lane.next++ % kBuffers];
  if (!buffer)
    buffer.reset(static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(PosixFile::kBlock), kLargestPiece)));
  if (!buffer) throw std::bad_alloc();
  std::memcpy(buffer.get(), blocks.data(), blocks.size());
  lane.beside.start(blocks.size(), [this, copy = std::span(buffer.get(), blocks.size()), offset] {
    write_blocks(copy, offset);
  });
}

// In a lane's thread.
void DirectWriter::write_blocks(std::span<const std::byte> blocks, int64_t offset) {
  const auto failure = attempt([&] {
    int64_t done = 0;
    if (!refused_) done = direct_->write_directly_at(blocks, offset);
    if (done == std::ssize(blocks)) return;
    if (done == 0) refused_ = true;
    file_.write_at(blocks.subspan(static_cast<size_t>(done)), offset + done);
  });
  if (!failure) return;
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

void DirectWriter::throw_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(failure_->code, failure_->text);
}

void DirectWriter::finish() {
  for (Lane& lane : lanes_) lane.beside.wait_for_all_but(0);
  throw_failure();
}

}  // namespace trireme::io
