// Opens the data of a job: on each machine one rank builds the indices, and the others there map
// them.
#pragma once

#include "trireme/base/log.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/data/token_source.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Collective over `world`. Sources on the ranks that read, none on the others. A rank that may not
// map what another one built builds its own: the samples are the same. Throws, on every rank, what
// opening threw on any.
DataSources open_shared_data(const DataOptions& options, const Communicator& world, bool reads,
                             const Log& log);

}  // namespace trireme::inline TRIREME_BACKEND
