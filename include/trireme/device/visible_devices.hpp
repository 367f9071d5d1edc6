// Which devices this process can see, for choosing one: launchers show a rank all GPUs of its host,
// or one of its own.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline TRIREME_BACKEND {

// Identity of each visible device, by index: "GPU-" and its UUID. Empty on the CPU.
std::vector<std::string> visible_devices();

// Why the visible devices do not suit ranks that see the same ones, or "": as many as ranks, or a
// single one. `shared`: any number will do.
std::string visibility_fault(int visible, int ranks, bool shared);

}  // namespace trireme::inline TRIREME_BACKEND
