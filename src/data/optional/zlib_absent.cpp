// A build without zlib refuses gzip.
#include "data/byte_source.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<ByteSource> open_gzip(std::unique_ptr<ByteSource>, const std::string& path) {
  fail(ExitCode::bad_data,
       "{}: this build cannot read gzip: install zlib (Debian: zlib1g-dev) and build again", path);
}

}  // namespace trireme
