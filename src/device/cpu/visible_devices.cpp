// The CPU is no device to choose.
#include "trireme/device/visible_devices.hpp"

namespace trireme::inline TRIREME_BACKEND {

std::vector<std::string> visible_devices() {
  return {};
}

}  // namespace trireme::inline TRIREME_BACKEND
