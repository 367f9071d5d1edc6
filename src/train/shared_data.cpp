#include "trireme/train/shared_data.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Equal for processes that can see each other's /proc: one kernel, one space of process ids.
std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name{std::istreambuf_iterator<char>(file), {}};
  std::error_code unknown;
  name += std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string();
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) name += host.data();
  return name;
}

struct Opened {
  DataSources sources;
  ExitCode code = ExitCode::ok;
  std::string fault;
};

Opened open(const DataOptions& options, std::shared_ptr<IndexMemory> memory) {
  Opened result;
  try {
    result.sources = open_data(options, std::move(memory));
  } catch (const Error& e) {
    result.code = e.code();
    result.fault = e.what();
  } catch (const std::exception& e) {
    result.code = ExitCode::internal;
    result.fault = fmt::format("opening the data: {}", e.what());
  }
  return result;
}

}  // namespace

DataSources open_shared_data(const DataOptions& options, const Communicator& world, bool reads,
                             const Log& log) {
  const std::vector<std::string> machines = world.gather_all(reads ? machine_name() : "");
  const std::string& mine = machines[static_cast<size_t>(world.rank())];
  const auto first = std::ranges::find(machines, mine) - machines.begin();
  const Communicator node =
      world.split(reads ? static_cast<int>(first) : -1, world.rank(), "data readers of a machine");
  Opened opened;
  std::shared_ptr<IndexMemory> memory;
  if (reads && node.rank() == 0) {
    if (node.size() > 1) memory = IndexMemory::shared();
    opened = open(options, memory);
  }
  int64_t alone = 0;
  if (reads && node.size() > 1) {
    const bool built = node.all(opened.fault.empty());
    const std::string handle = node.broadcast(memory ? memory->handle() : "", 0);
    if (built && node.rank() > 0) {
      memory = handle.empty() ? nullptr : IndexMemory::attach(handle);
      alone = memory == nullptr ? 1 : 0;
      opened = open(options, memory);
    }
  }
  const auto worst = static_cast<ExitCode>(world.max(static_cast<int64_t>(opened.code)));
  world.require_all(opened.fault.empty(), worst, opened.fault);
  const int64_t builders = world.sum(alone);
  if (builders > 0)
    log.info("data: {} ranks could not map the index that another one built, and built their own",
             builders);
  return std::move(opened.sources);
}

}  // namespace trireme::inline TRIREME_BACKEND
