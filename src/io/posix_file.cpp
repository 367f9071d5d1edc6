// Files by open, pread, pwrite, fallocate, fsync and rename.
#include "io/posix_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::io {
namespace {

constexpr size_t kLargestTransfer = size_t{1} << 30;

[[noreturn]] void fail_with(const char* operation, const std::filesystem::path& path,
                            int error_number) {
  const ExitCode code = error_number == ENOENT ? ExitCode::no_input : ExitCode::io;
  fail(code, "cannot {} {}: {}", operation, path.string(), system_reason(error_number));
}

// A call that a signal interrupted is made again.
template <class Call>
auto uninterrupted(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

void require_space(int descriptor, const std::filesystem::path& path, int64_t bytes) {
  struct statvfs space {};
  if (fstatvfs(descriptor, &space) != 0) fail_with("ask for free space of", path, errno);
  const double free = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  require(free >= 1.05 * static_cast<double>(bytes), ExitCode::io,
          "cannot write {}: it needs {} bytes and 5 % to spare, {:.0f} are free", path.string(),
          bytes, free);
}

}  // namespace

std::string system_reason(int error_number) {
  return fmt::format("{} (errno {})", std::generic_category().message(error_number), error_number);
}

PosixFile::PosixFile(int descriptor, std::filesystem::path path)
    : descriptor_(descriptor), path_(std::move(path)) {}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

PosixFile PosixFile::open_to_read(const std::filesystem::path& path) {
  const int descriptor =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) fail_with("open", path, errno);
  PosixFile file(descriptor, path);
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail_with("look at", path, errno);
  require(S_ISREG(status.st_mode), ExitCode::bad_data, "{} is not a regular file", path.string());
  return file;
}

PosixFile PosixFile::open_to_write(const std::filesystem::path& path) {
  const int descriptor =
      uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW); });
  if (descriptor < 0)
    fail(ExitCode::io, "cannot open {} to write: {}", path.string(), system_reason(errno));
  return {descriptor, path};
}

std::optional<PosixFile> PosixFile::open_to_write_directly(const std::filesystem::path& path) {
  const int descriptor = uninterrupted(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT); });
  if (descriptor < 0) return std::nullopt;
  return PosixFile(descriptor, path);
}

PosixFile PosixFile::create(const std::filesystem::path& path) {
  const int descriptor = uninterrupted([&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  });
  if (descriptor < 0)
    fail(ExitCode::io, "cannot create {}: {}", path.string(), system_reason(errno));
  return {descriptor, path};
}

int64_t PosixFile::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail_with("look at", path_, errno);
  return status.st_size;
}

void PosixFile::write_at(std::span<const std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kLargestTransfer), offset);
    if (done < 0 && errno == EINTR) continue;
    require(done >= 0, ExitCode::io, "cannot write {} bytes at {} of {}: {}", bytes.size(), offset,
            path_.string(), system_reason(errno));
    require(done > 0, ExitCode::io, "cannot write {} bytes at {} of {}: nothing was accepted",
            bytes.size(), offset, path_.string());
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

int64_t PosixFile::write_directly_at(std::span<const std::byte> bytes, int64_t offset) const {
  const ssize_t done = uninterrupted([&] {
    return ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kLargestTransfer), offset);
  });
  if (done < 0 && errno == EINVAL) return 0;
  require(done >= 0, ExitCode::io, "cannot write {} bytes at {} of {}: {}", bytes.size(), offset,
          path_.string(), system_reason(errno));
  return done;
}

void PosixFile::start_writing(int64_t offset, int64_t bytes) const {
  // Without a wait it neither reports nor forgets an error of the disk.
  static_cast<void>(::sync_file_range(descriptor_, offset, bytes, SYNC_FILE_RANGE_WRITE));
}

void PosixFile::start_reading(int64_t offset, int64_t bytes) const {
  static_cast<void>(::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED));
}

void PosixFile::read_at(std::span<std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pread(descriptor_, bytes.data(), std::min(bytes.size(), kLargestTransfer), offset);
    if (done < 0 && errno == EINTR) continue;
    require(done >= 0, ExitCode::io, "cannot read {} bytes at {} of {}: {}", bytes.size(), offset,
            path_.string(), system_reason(errno));
    require(done > 0, ExitCode::bad_data, "{} ends before byte {}", path_.string(),
            offset + static_cast<int64_t>(bytes.size()));
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

void PosixFile::reserve(int64_t bytes) const {
  if (uninterrupted([&] { return ::fallocate(descriptor_, 0, 0, bytes); }) == 0) return;
  require(errno == EOPNOTSUPP || errno == ENOSYS, ExitCode::io,
          "cannot reserve {} bytes for {}: {}; free some space or choose another directory", bytes,
          path_.string(), system_reason(errno));
  require_space(descriptor_, path_, bytes);
  if (ftruncate(descriptor_, bytes) != 0) fail_with("set the size of", path_, errno);
}

void PosixFile::sync() const {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail_with("sync", path_, errno);
}

void PosixFile::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR)
    fail_with("close", path_, errno);
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  require(std::rename(from.c_str(), to.c_str()) == 0, ExitCode::io, "cannot rename {} to {}: {}",
          from.string(), to.string(), system_reason(errno));
}

bool remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno != ENOENT) fail_with("remove", path, errno);
  return false;
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor =
      uninterrupted([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  require(descriptor >= 0, ExitCode::io, "cannot open directory {}: {}", directory.string(),
          system_reason(errno));
  const int result = uninterrupted([&] { return ::fsync(descriptor); });
  const int reason = errno;
  ::close(descriptor);
  // Some network file systems have no sync of directories; their renames are the server's matter.
  if (result != 0 && reason != EINVAL && reason != ENOTSUP) fail_with("sync", directory, reason);
}

void write_text_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  remove_file(temporary);
  try {
    PosixFile file = PosixFile::create(temporary);
    file.write_at(std::as_bytes(std::span(text)), 0);
    file.sync();
    file.close();
    rename_file(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

std::string read_text_file(const std::filesystem::path& path, int64_t limit) {
  const PosixFile file = PosixFile::open_to_read(path);
  const int64_t size = file.size();
  require(size <= limit, ExitCode::bad_data, "{} has {} bytes; at most {} are expected",
          path.string(), size, limit);
  std::string text(static_cast<size_t>(size), '\0');
  file.read_at(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

}  // namespace trireme::io
