// Which devices this process can see, for choosing one: launchers show a rank all GPUs of its host,
// or one of its own.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::inline TRIREME_BACKEND {

// Identity of each visible device, by index: "GPU-" and its UUID. Empty on the CPU.
std::vector<std::string> visible_devices();

// Why the visible devices do not suit ranks that see the same ones, or "": as many as ranks, or a
// single one. `shared`: any number will do.
std::string visibility_fault(int visible, int ranks, bool shared);

struct SeenDevices {
  int node = 0;  // host of the rank
  std::vector<std::string> ids;
};
// What to warn of where ranks of a host see one device each and not the same one, or "": CUDA
// cannot map the memory of a device that is hidden. `ranks`: what each one sees.
std::string hidden_devices(std::span<const SeenDevices> ranks);

}  // namespace trireme::inline TRIREME_BACKEND
