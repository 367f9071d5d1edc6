#include "data/byte_source.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/posix_file.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class FileSource : public ByteSource {
 public:
  FileSource(const std::string& path, int64_t begin) : file_(path), begin_(begin), at_(begin) {}
  size_t read(std::span<char> out) override {
    const int64_t left = std::max<int64_t>(file_.size() - at_, 0);
    const size_t n = std::min(out.size(), static_cast<size_t>(left));
    file_.read_at(at_, std::as_writable_bytes(out.first(n)));
    at_ += static_cast<int64_t>(n);
    return n;
  }
  int64_t taken() const override { return at_ - begin_; }

 private:
  InputFile file_;
  int64_t begin_, at_;
};

class StandardInput : public ByteSource {
 public:
  size_t read(std::span<char> out) override {
    while (true) {
      const ssize_t n = ::read(STDIN_FILENO, out.data(), out.size());
      if (n < 0 && errno == EINTR) continue;
      require(n >= 0, ExitCode::no_input, "standard input: cannot read at byte {}: {}", taken_,
              std::strerror(errno));
      taken_ += n;
      return static_cast<size_t>(n);
    }
  }
  int64_t taken() const override { return taken_; }

 private:
  int64_t taken_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> open_file(const std::string& path, int64_t begin) {
  return std::make_unique<FileSource>(path, begin);
}

std::unique_ptr<ByteSource> open_standard_input() {
  return std::make_unique<StandardInput>();
}

Packing packing_of(const std::string& path) {
  const InputFile file(path);
  std::string start(static_cast<size_t>(std::min<int64_t>(file.size(), 4)), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(start)));
  if (start.starts_with("\x1f\x8b")) return Packing::gzip;
  return start == "\x28\xb5\x2f\xfd" ? Packing::zstd : Packing::none;
}

}  // namespace trireme
