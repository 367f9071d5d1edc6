// Judging what the ranks know of their hosts: see the header.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "trireme/train/host_facts.hpp"

namespace trireme {
namespace {

// NCCL takes about 33 MB of /dev/shm for a communicator of a host; a grid has several.
constexpr int64_t kLittleSharedMemory = int64_t{128} << 20;
constexpr int64_t kLittleLockedMemory = int64_t{64} << 20;

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranges_of(ranks));
}

// Ranks of one host with the same mask share its processors.
void warn_of_binding(std::span<const PlacedFacts> facts, std::vector<std::string>& lines) {
  std::map<std::pair<int, std::string>, std::vector<int>> sharing;
  for (size_t rank = 0; rank < facts.size(); ++rank)
    sharing[{facts[rank].node, facts[rank].facts.processors}].push_back(static_cast<int>(rank));
  for (const auto& [key, ranks] : sharing) {
    int threads = 0;
    for (const int rank : ranks) threads += facts[static_cast<size_t>(rank)].facts.threads;
    const PlacedFacts& one = facts[static_cast<size_t>(ranks.front())];
    const int have = one.facts.processor_count;
    if (have == 0 || threads <= have) continue;
    lines.push_back(fmt::format(
        "{} on {} run {} threads on processor{} {}: they will wait for each other. Give each rank "
        "processors of its own: mpirun --bind-to none or --map-by ppr:N:node:PE=n; srun "
        "--cpus-per-task=n (SLURM 22.05 and later do not take it from sbatch); or fewer threads: "
        "OMP_NUM_THREADS",
        ranks_text(ranks), one.host, threads, have == 1 ? "" : "s", key.second));
  }
}

// Adds one line for the hosts where `bad` holds.
void warn_of_hosts(std::span<const PlacedFacts> facts, std::vector<std::string>& lines,
                   const std::function<bool(const HostFacts&)>& bad,
                   const std::function<std::string(const HostFacts&)>& text) {
  std::set<int> seen;
  const PlacedFacts* first = nullptr;
  for (const PlacedFacts& rank : facts) {
    if (!bad(rank.facts) || !seen.insert(rank.node).second) continue;
    if (first == nullptr) first = &rank;
  }
  if (first == nullptr) return;
  lines.push_back(fmt::format(
      "{}{}: {}", first->host,
      seen.size() == 1 ? std::string() : fmt::format(" and {} more hosts", seen.size() - 1),
      text(first->facts)));
}

void warn_of_variables(std::span<const PlacedFacts> facts, std::vector<std::string>& lines) {
  std::set<std::string> names;
  for (const PlacedFacts& rank : facts)
    for (const auto& [name, value] : rank.facts.variables) names.insert(name);
  const auto value_at = [&](size_t rank, const std::string& name) {
    const auto& all = facts[rank].facts.variables;
    const auto found = all.find(name);
    return found == all.end() ? std::string("(not set)") : found->second;
  };
  for (const std::string& name : names) {
    std::vector<int> others;
    for (size_t rank = 1; rank < facts.size(); ++rank)
      if (value_at(rank, name) != value_at(0, name)) others.push_back(static_cast<int>(rank));
    if (!others.empty())
      lines.push_back(
          fmt::format("{} is {} on rank 0 and {} on {}: give it to all ranks with mpirun -x {}",
                      name, value_at(0, name), value_at(static_cast<size_t>(others.front()), name),
                      ranks_text(others), name));
    if (name.starts_with("TORCH_NCCL_") || name == "NCCL_ASYNC_ERROR_HANDLING" ||
        name == "NCCL_TIMEOUT" || name == "NCCL_BLOCKING_WAIT")
      lines.push_back(fmt::format(
          "{} belongs to PyTorch and does nothing here; fault.deadline ends a job that hangs",
          name));
    if (name == "NCCL_P2P_DISABLE" || name == "NCCL_SHM_DISABLE" || name == "NCCL_IB_DISABLE")
      lines.push_back(
          fmt::format("{} is for finding faults: it slows the job down where it is left", name));
  }
}

}  // namespace

std::vector<std::string> host_warnings(std::span<const PlacedFacts> facts, bool gpus) {
  std::vector<std::string> lines;
  warn_of_binding(facts, lines);
  std::map<int, int> ranks_on;
  for (const PlacedFacts& rank : facts) ++ranks_on[rank.node];
  const bool shared =
      std::ranges::any_of(ranks_on, [](const auto& node) { return node.second > 1; });
  if (shared)
    warn_of_hosts(
        facts, lines,
        [](const HostFacts& f) {
          return f.shared_memory_bytes > 0 && f.shared_memory_bytes < kLittleSharedMemory;
        },
        [](const HostFacts& f) {
          return fmt::format(
              "/dev/shm has {} MiB; ranks of a host talk through it (NCCL: about 33 MB for each "
              "communicator). Mount more: an emptyDir with medium Memory, docker --shm-size=8g",
              f.shared_memory_bytes >> 20);
        });
  warn_of_hosts(
      facts, lines,
      [](const HostFacts& f) {
        return f.has_infiniband && f.locked_memory_bytes >= 0 &&
               f.locked_memory_bytes < kLittleLockedMemory;
      },
      [](const HostFacts& f) {
        return fmt::format(
            "memory that may be locked is limited to {} KiB, and InfiniBand registers buffers with "
            "it: ulimit -l unlimited (containers: IPC_LOCK and --ulimit memlock=-1)",
            f.locked_memory_bytes >> 10);
      });
  if (gpus || facts.size() > 1) warn_of_variables(facts, lines);
  return lines;
}

}  // namespace trireme
