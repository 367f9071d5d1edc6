// POSIX reads and writes that retry when interrupted and say what went wrong, where.
#include "data/posix_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Writes all of `bytes` at `offset`.
void write_all(int descriptor, const std::string& path, int64_t offset,
               std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    require(n > 0, ExitCode::io, "{}: cannot write at byte {}: {}", path, offset,
            std::strerror(n < 0 ? errno : EIO));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

// Raises this process's limit of open files, which is often 1024, to what it may be: a blend of
// many datasets holds one file of each open.
bool allow_more_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// Open for writing; closed by the destructor, where there is nothing left to report.
struct Descriptor {
  explicit Descriptor(const std::string& path)
      : number(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int number;
};

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a pipe without a writer must not hang here; it is refused below.
  constexpr int kHow = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  descriptor_ = ::open(path_.c_str(), kHow);
  if (descriptor_ < 0 && errno == EMFILE && allow_more_files())
    descriptor_ = ::open(path_.c_str(), kHow);
  require(descriptor_ >= 0, ExitCode::no_input, "{}: cannot open it: {}", path_,
          std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(ExitCode::no_input, "{}: not a regular file", path_);
  }
  size_ = status.st_size;
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

void InputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, ExitCode::io, "{}: cannot read at byte {}: {}", path_, offset,
            std::strerror(errno));
    require(n > 0, ExitCode::no_input,
            "{}: ends at byte {}, it had {} bytes when it was opened: was it cut or replaced while "
            "in use?",
            path_, offset, size_);
    out = out.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

int64_t InputFile::next_data(int64_t offset) const {
  const off_t place = ::lseek(descriptor_, offset, SEEK_DATA);
  if (place >= 0) return place;
  return errno == ENXIO ? size_ : offset;
}

int64_t InputFile::next_hole(int64_t offset) const {
  const off_t place = ::lseek(descriptor_, offset, SEEK_HOLE);
  return place >= 0 ? place : size_;
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  buffer_.reserve(kBufferBytes);
  for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
    const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
    temporary_ = fmt::format("{}.{}.{:x}.partial", path_, ::getpid(), ticks + attempt);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  require(descriptor_ >= 0, ExitCode::io, "{}: cannot create it: {}", temporary_,
          std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!published_) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void OutputFile::skip(int64_t bytes) {
  flush();
  flushed_ += bytes;
}

void OutputFile::flush() {
  write_all(descriptor_, temporary_, flushed_, buffer_);
  flushed_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void OutputFile::flush_to_disk() {
  set_size();
  require(::fsync(descriptor_) == 0, ExitCode::io, "{}: cannot flush it to disk: {}", temporary_,
          std::strerror(errno));
  close();
}

void OutputFile::finish() {
  set_size();
  close();
}

void OutputFile::set_size() {
  flush();
  require(::ftruncate(descriptor_, flushed_) == 0, ExitCode::io,
          "{}: cannot set its size to {}: {}", temporary_, flushed_, std::strerror(errno));
}

void OutputFile::close() {
  // Some file systems report a full disk or a lost server only here.
  const int descriptor = std::exchange(descriptor_, -1);
  require(::close(descriptor) == 0, ExitCode::io, "{}: cannot close it: {}", temporary_,
          std::strerror(errno));
}

void OutputFile::publish() {
  require(::rename(temporary_.c_str(), path_.c_str()) == 0, ExitCode::io,
          "{}: cannot rename {} to it: {}", path_, temporary_, std::strerror(errno));
  published_ = true;
}

void move_into(const std::string& from, std::span<const FileRun> runs, const std::string& path) {
  const InputFile source(from);
  const Descriptor given_back(from), to(path);
  require(to.number >= 0, ExitCode::io, "{}: cannot open it: {}", path, std::strerror(errno));
  std::vector<std::byte> chunk(kBufferBytes);
  for (const FileRun& run : runs) {
    for (int64_t done = 0; done < run.bytes;) {
      const auto n = static_cast<size_t>(std::min<int64_t>(kBufferBytes, run.bytes - done));
      source.read_at(run.from + done, std::span(chunk).first(n));
      write_all(to.number, path, run.to + done, std::span(chunk).first(n));
      // A wish: what stays is removed with the file.
      ::fallocate(given_back.number, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, run.from + done,
                  static_cast<off_t>(n));
      done += static_cast<int64_t>(n);
    }
    // A wish, too: the less is left to write at the end.
    ::sync_file_range(to.number, run.to, run.bytes, SYNC_FILE_RANGE_WRITE);
  }
}

void flush_to_disk(const std::string& path) {
  const Descriptor file(path);
  require(file.number >= 0, ExitCode::io, "{}: cannot open it: {}", path, std::strerror(errno));
  require(::fsync(file.number) == 0, ExitCode::io, "{}: cannot flush it to disk: {}", path,
          std::strerror(errno));
}

void sync_directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(descriptor >= 0, ExitCode::io, "{}: cannot open the directory: {}", folder,
          std::strerror(errno));
  // EINVAL: the file system has no way to flush a directory.
  const int status = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  require(status == 0, ExitCode::io, "{}: cannot flush the directory: {}", folder,
          std::strerror(status));
}

void remove_if_present(const std::string& path) {
  require(::unlink(path.c_str()) == 0 || errno == ENOENT, ExitCode::io, "{}: cannot remove it: {}",
          path, std::strerror(errno));
}

}  // namespace trireme
