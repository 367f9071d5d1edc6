// Blocks of anonymous memory, or of a memfd that other processes reach through /proc.
#include "trireme/data/index_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

constexpr size_t kBlock = size_t{4} << 20;  // of small arrays; untouched pages cost nothing
constexpr size_t kLarge = size_t{1} << 20;  // an array from here on has a block of its own
constexpr size_t kPage = size_t{1} << 12;
constexpr size_t kLine = 64;

size_t round_to(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

std::shared_ptr<IndexMemory> IndexMemory::shared() {
  auto memory = std::make_shared<IndexMemory>();
  memory->descriptor_ = ::memfd_create("trireme index", MFD_CLOEXEC);
  return memory->descriptor_ < 0 ? nullptr : memory;
}

std::shared_ptr<IndexMemory> IndexMemory::attach(const std::string& handle) {
  auto memory = std::make_shared<IndexMemory>();
  memory->descriptor_ = ::open(handle.c_str(), O_RDONLY | O_CLOEXEC);
  memory->attached_ = true;
  return memory->descriptor_ < 0 ? nullptr : memory;
}

IndexMemory::~IndexMemory() {
  for (const Block& block : blocks_) ::munmap(block.data, block.size);
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string IndexMemory::handle() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_);
}

void* IndexMemory::take_bytes(int64_t count, size_t width) {
  const size_t bytes = static_cast<size_t>(checked_mul(count, static_cast<int64_t>(width)));
  bytes_ += static_cast<int64_t>(bytes);
  const size_t size = round_to(bytes, kLine);
  if (size >= kLarge) return map(round_to(size, kPage)).data;
  if (size > open_.size) open_ = map(kBlock);
  std::byte* const data = open_.data;
  open_ = {data + size, open_.size - size};
  return data;
}

IndexMemory::Block IndexMemory::map(size_t size) {
  const bool own = descriptor_ < 0;
  const size_t end = offset_ + size;
  if (attached_) {
    struct stat status {};
    require(::fstat(descriptor_, &status) == 0 && end <= static_cast<size_t>(status.st_size),
            ExitCode::internal, "the index that another rank built is of other data");
  } else if (!own) {
    require(::ftruncate(descriptor_, static_cast<off_t>(end)) == 0, ExitCode::io,
            "no shared memory for {} bytes of the data's index: {}", end, std::strerror(errno));
  }
  const int access = attached_ ? PROT_READ : PROT_READ | PROT_WRITE;
  const int kind = own ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const data =
      ::mmap(nullptr, size, access, kind, descriptor_, own ? 0 : static_cast<off_t>(offset_));
  require(data != MAP_FAILED, ExitCode::io, "no memory for {} bytes of the data's index: {}", size,
          std::strerror(errno));
  offset_ = end;
  blocks_.push_back({static_cast<std::byte*>(data), size});
  return blocks_.back();
}

}  // namespace trireme
