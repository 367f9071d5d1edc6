#include "trireme/train/version.hpp"

#include <fmt/format.h>

#include "trireme/device/device.hpp"

namespace trireme {

std::string version_text() {
  return fmt::format("trireme {} ({})", TRIREME_VERSION, backend_name());
}

}  // namespace trireme
