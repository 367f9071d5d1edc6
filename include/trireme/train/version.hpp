// What this program is, for reports and sidecars.
#pragma once

#include <string>

namespace trireme {

// "trireme 0.1.0 (cpu)".
std::string version_text();

// Identity of this very build, in hexadecimal: the linker's build id, a hash of everything in the
// program.
std::string build_id();

}  // namespace trireme
