// What a rank knows of its host and what may make it slow or fail later: processors it is bound to,
// shared memory, locked memory, communication variables. Facts are gathered here, judged by pure
// functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace trireme {

struct HostFacts {
  std::string processors;  // of the affinity mask: "0-7,16-23"
  int processor_count = 1;
  int threads = 1;
  int64_t shared_memory_bytes = 0;  // size of /dev/shm; 0: unknown
  int64_t locked_memory_bytes = 0;  // limit; -1: none
  bool has_infiniband = false;
  std::map<std::string, std::string>
      variables;  // NCCL_*, UCX_*, and those of Open MPI's transports

  std::string text() const;  // to send to other ranks
  static HostFacts parse(const std::string& text);
};

// Of this process. `threads` is what the rank computes with.
HostFacts host_facts(int threads);

// "0-2,5" of ascending numbers.
std::string ranges_of(std::span<const int> numbers);

struct PlacedFacts {
  int node = 0;
  std::string host;
  HostFacts facts;
};
// One line for each thing to warn of: ranks that share processors with more threads than there are,
// little /dev/shm, a low memlock limit beside InfiniBand, variables that differ between ranks, that
// do nothing or that belong to debugging. `facts` is by rank; `gpus`: NCCL moves the data.
std::vector<std::string> host_warnings(std::span<const PlacedFacts> facts, bool gpus);

}  // namespace trireme
