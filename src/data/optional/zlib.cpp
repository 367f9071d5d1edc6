// gzip by zlib.
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "data/byte_source.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class GzipSource : public ByteSource {
 public:
  GzipSource(std::unique_ptr<ByteSource> packed, std::string path)
      : packed_(std::move(packed)), path_(std::move(path)), buffer_(size_t{1} << 18) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    require(inflateInit2(&stream_, kGzipOnly) == Z_OK, ExitCode::internal, "zlib cannot start");
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    const size_t room = std::min<size_t>(out.size(), size_t{1} << 30);
    stream_.avail_out = static_cast<uInt>(room);
    while (stream_.avail_out == room) {
      if (stream_.avail_in == 0 && !refill()) break;
      if (!in_member_) {
        inflateReset(&stream_);
        in_member_ = true;
      }
      const int status = inflate(&stream_, Z_NO_FLUSH);
      require(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, ExitCode::bad_data,
              "{}: damaged gzip data before byte {}: {}", path_,
              packed_->taken() - stream_.avail_in,
              stream_.msg == nullptr ? "unknown" : stream_.msg);
      if (status == Z_STREAM_END) in_member_ = false;
    }
    return room - stream_.avail_out;
  }
  int64_t taken() const override { return packed_->taken(); }

 private:
  // False at the end of the file.
  bool refill() {
    const size_t n = packed_->read(buffer_);
    stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_in = static_cast<uInt>(n);
    require(n > 0 || !in_member_, ExitCode::bad_data,
            "{}: the gzip data ends too early, at byte {}: was it cut?", path_, packed_->taken());
    return n > 0;
  }

  std::unique_ptr<ByteSource> packed_;
  std::string path_;
  std::vector<char> buffer_;
  z_stream stream_{};
  bool in_member_ = true;
};

}  // namespace

std::unique_ptr<ByteSource> open_gzip(std::unique_ptr<ByteSource> packed, const std::string& path) {
  return std::make_unique<GzipSource>(std::move(packed), path);
}

}  // namespace trireme
