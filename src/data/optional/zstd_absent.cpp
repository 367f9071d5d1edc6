// A build without zstd refuses its files.
#include "data/byte_source.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<ByteSource> open_zstd(std::unique_ptr<ByteSource>, const std::string& path) {
  fail(ExitCode::bad_data,
       "{}: this build cannot read zstd: install it (Debian: libzstd-dev) and build again", path);
}

}  // namespace trireme
