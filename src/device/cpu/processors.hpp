// How many cores, and how much memory, this process may use: affinity mask, hyper-threads, control
// groups and the other ranks of the host. Linux only; files that cannot be read count as "no
// limit".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::inline TRIREME_BACKEND {

// Physical cores in the affinity mask of this process, at most the processor quota of its control
// group (rounded up); at least 1.
int usable_cores();

// Ranks that share those cores with this one, itself included: processes that run the same program
// with an affinity mask that overlaps. A launcher that binds each rank to cores of its own gives 1.
// At most `node_ranks`; where nothing can be seen of the others and the mask is the whole host, all
// of them.
int ranks_sharing_cores(int node_ranks);

// "Intel(R) Xeon(R) Processor, AVX-512".
std::string processor_name();

// "AVX-512", "AVX2" (with fused multiply-add) or nothing.
std::string_view vector_extension();

// Bytes of memory of the host, or of the control group of this process where that is less.
struct HostMemory {
  size_t total = 0;
  size_t free = 0;
};
HostMemory host_memory();

}  // namespace trireme::inline TRIREME_BACKEND
