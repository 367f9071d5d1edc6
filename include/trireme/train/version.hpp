// What this program is, for reports and sidecars.
#pragma once

#include <string>

namespace trireme {

// "trireme 0.1.0 (cpu)".
std::string version_text();

}  // namespace trireme
