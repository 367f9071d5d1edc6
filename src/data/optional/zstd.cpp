// Zstandard by its own library.
#include <zstd.h>

#include <vector>

#include "data/byte_source.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class ZstdSource : public ByteSource {
 public:
  ZstdSource(std::unique_ptr<ByteSource> packed, std::string path)
      : packed_(std::move(packed)),
        path_(std::move(path)),
        buffer_(size_t{1} << 18),
        stream_(ZSTD_createDStream()) {
    require(stream_ != nullptr, ExitCode::internal, "zstd cannot start");
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    while (target.pos == 0 && !out.empty()) {
      // Decoded bytes may wait inside the library when all input is taken.
      if (input_.pos == input_.size && !flushing_ && !refill()) break;
      const size_t status = ZSTD_decompressStream(stream_, &target, &input_);
      require(!ZSTD_isError(status), ExitCode::bad_data, "{}: damaged zstd data before byte {}: {}",
              path_, packed_->taken(), ZSTD_getErrorName(status));
      in_frame_ = status != 0;
      flushing_ = target.pos == target.size;
    }
    return target.pos;
  }
  int64_t taken() const override { return packed_->taken(); }

 private:
  bool refill() {
    input_ = {buffer_.data(), packed_->read(buffer_), 0};
    require(input_.size > 0 || !in_frame_, ExitCode::bad_data,
            "{}: the zstd data ends too early, at byte {}: was it cut?", path_, packed_->taken());
    return input_.size > 0;
  }

  std::unique_ptr<ByteSource> packed_;
  std::string path_;
  std::vector<char> buffer_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool in_frame_ = false, flushing_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_zstd(std::unique_ptr<ByteSource> packed, const std::string& path) {
  return std::make_unique<ZstdSource>(std::move(packed), path);
}

}  // namespace trireme
