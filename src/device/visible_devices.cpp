// The rule that ties ranks to visible devices.
#include "trireme/device/visible_devices.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace trireme::inline TRIREME_BACKEND {

std::string visibility_fault(int visible, int ranks, bool shared) {
  if (visible <= 1 || visible >= ranks || shared) return "";
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return fmt::format("{}={}", name, text == nullptr ? "(not set)" : text);
  };
  return fmt::format(
      "{} ranks of one host see the same {} GPUs: each rank needs one of its own. {}, {}, {}. "
      "Start {} ranks on a host or show them more GPUs (SLURM: --gpus-per-node with "
      "--gpu-bind=none); "
      "for tests allow it: --grid.share_devices=true",
      ranks, visible, value("CUDA_VISIBLE_DEVICES"), value("SLURM_GPUS_ON_NODE"),
      value("SLURM_STEP_GPUS"), visible);
}

std::string hidden_devices(std::span<const SeenDevices> ranks) {
  for (const SeenDevices& one : ranks)
    for (const SeenDevices& other : ranks)
      if (one.node == other.node && one.ids.size() == 1 && other.ids.size() == 1 &&
          one.ids != other.ids)
        return "each rank sees a single GPU of its own: where control groups hide the others, "
               "ranks "
               "of a host cannot reach each other's memory (slow copies, or CUDA IPC errors). "
               "Prefer --gpus-per-node with --gpu-bind=none: ranks choose by themselves";
  return "";
}

}  // namespace trireme::inline TRIREME_BACKEND
