// Gathering: the affinity mask, /dev/shm, limits, the environment.
#include "trireme/train/host_facts.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace trireme {
namespace {

std::vector<int> affinity() {
  std::vector<int> numbers;
  for (int capacity = 1024; capacity <= 65536 && numbers.empty(); capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(capacity));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(capacity));
    if (set != nullptr && sched_getaffinity(0, bytes, set) == 0)
      for (int i = 0; i < capacity; ++i)
        if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) numbers.push_back(i);
    CPU_FREE(set);
  }
  return numbers;
}

bool is_communication(std::string_view name) {
  for (const std::string_view prefix :
       {"NCCL_", "TORCH_NCCL_", "UCX_", "OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_oob_tcp",
        "OMPI_MCA_coll", "OMPI_MCA_mtl"})
    if (name.starts_with(prefix)) return true;
  return false;
}

}  // namespace

std::string ranges_of(std::span<const int> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text.append("-").append(std::to_string(numbers[last]));
    i = last + 1;
  }
  return text;
}

HostFacts host_facts(int threads) {
  HostFacts facts;
  const std::vector<int> mask = affinity();
  facts.processors = ranges_of(mask);
  facts.processor_count = static_cast<int>(mask.size());
  facts.threads = threads;
  struct statvfs disk {};
  if (statvfs("/dev/shm", &disk) == 0)
    facts.shared_memory_bytes = static_cast<int64_t>(disk.f_blocks * disk.f_frsize);
  struct rlimit limit {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    facts.locked_memory_bytes =
        limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit.rlim_cur);
  std::error_code ignored;
  facts.has_infiniband = std::filesystem::directory_iterator("/sys/class/infiniband", ignored) !=
                         std::filesystem::directory_iterator();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos && is_communication(text.substr(0, equals)))
      facts.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return facts;
}

std::string HostFacts::text() const {
  using nlohmann::json;
  const json all = {processors,          processor_count, threads,  shared_memory_bytes,
                    locked_memory_bytes, has_infiniband,  variables};
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

HostFacts HostFacts::parse(const std::string& text) {
  const auto all = nlohmann::json::parse(text);
  return {all[0], all[1], all[2], all[3], all[4], all[5], all[6]};
}

}  // namespace trireme
