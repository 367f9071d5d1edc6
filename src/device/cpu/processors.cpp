// Reads the affinity mask, /proc, /sys and the control group: see the header.
#include "device/cpu/processors.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

namespace fs = std::filesystem;

// One flag a logical processor; empty when the mask cannot be read.
std::vector<bool> affinity_of(pid_t process) {
  for (int capacity = 1024; capacity <= 65536; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(capacity));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(capacity));
    const bool known = set != nullptr && sched_getaffinity(process, bytes, set) == 0;
    std::vector<bool> mask;
    if (known)
      for (int i = 0; i < capacity; ++i)
        mask.push_back(CPU_ISSET_S(static_cast<size_t>(i), bytes, set));
    CPU_FREE(set);
    if (known) return mask;
  }
  return {};
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<size_t> number(const std::string& text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// Folders of this process' control group (version 2), from the leaf up to the root.
std::vector<fs::path> control_groups() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    const fs::path root = "/sys/fs/cgroup";
    std::vector<fs::path> folders;
    for (fs::path at = root / fs::path(line.substr(3)).relative_path(); at != root.parent_path();
         at = at.parent_path())
      folders.push_back(at);
    return folders;
  }
  return {};
}

// Processors of the control group's quota; 0 where there is none.
int quota_cores() {
  double least = 0;
  for (const fs::path& folder : control_groups()) {
    std::istringstream text(first_line(folder / "cpu.max"));
    double quota = 0;
    double period = 0;
    if (text >> quota >> period && period > 0)
      least = least == 0 ? quota / period : std::min(least, quota / period);
  }
  return static_cast<int>(std::ceil(least));
}

// The file that a process runs; nothing where it is gone or belongs to somebody else.
std::optional<std::pair<dev_t, ino_t>> program_of(const fs::path& process) {
  struct stat info {};
  if (stat((process / "exe").c_str(), &info) != 0) return std::nullopt;
  return std::pair(info.st_dev, info.st_ino);
}

int overlapping_ranks(const std::vector<bool>& mine) {
  const auto program = program_of("/proc/self");
  int count = 0;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const auto id = number(at->path().filename().string());
    if (!id || !program || program_of(at->path()) != program) continue;
    const std::vector<bool> theirs = affinity_of(static_cast<pid_t>(*id));
    bool overlap = false;
    for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i)
      overlap = overlap || (mine[i] && theirs[i]);
    count += overlap ? 1 : 0;
  }
  return count;
}

}  // namespace

int usable_cores() {
  const std::vector<bool> mask = affinity_of(0);
  std::set<std::string> cores;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    const std::string siblings =
        first_line(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", i));
    cores.insert(siblings.empty() ? fmt::format("processor {}", i) : siblings);
  }
  const int count = std::max(1, static_cast<int>(cores.size()));
  const int quota = quota_cores();
  return quota > 0 ? std::min(count, quota) : count;
}

int ranks_sharing_cores(int node_ranks) {
  if (node_ranks <= 1) return 1;
  const std::vector<bool> mask = affinity_of(0);
  const auto mine = std::count(mask.begin(), mask.end(), true);
  const int seen = overlapping_ranks(mask);
  const bool whole_host = mine >= sysconf(_SC_NPROCESSORS_ONLN);
  if (seen <= 1 && whole_host) return node_ranks;
  return std::clamp(seen, 1, node_ranks);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::string name = "unknown processor";
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0 && line.find(':') + 2 < line.size()) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  }
  const std::string_view vectors = vector_extension();
  return vectors.empty() ? name : fmt::format("{}, {}", name, vectors);
}

#if defined(__x86_64__)
std::string_view vector_extension() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return "AVX-512";
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "AVX2" : "";
}
#else
std::string_view vector_extension() {
  return "";
}
#endif

HostMemory host_memory() {
  HostMemory memory;
  std::ifstream file("/proc/meminfo");
  std::string key;
  size_t kibibytes = 0;
  std::string rest;
  while (file >> key >> kibibytes && std::getline(file, rest)) {
    if (key == "MemTotal:") memory.total = kibibytes << 10;
    if (key == "MemAvailable:") memory.free = kibibytes << 10;
  }
  for (const fs::path& folder : control_groups()) {
    const auto limit = number(first_line(folder / "memory.max"));
    const auto used = number(first_line(folder / "memory.current"));
    if (!limit) continue;
    memory.total = std::min(memory.total, *limit);
    if (used) memory.free = std::min(memory.free, *limit > *used ? *limit - *used : 0);
  }
  return memory;
}

}  // namespace trireme::inline TRIREME_BACKEND
