// The first collective call of a job, which must not hang: MPI connects ranks when they first talk,
// and where hosts have several networks it may try for ever on one that leads nowhere.
#pragma once

#include <string>

namespace trireme {

// Collective over MPI_COMM_WORLD. Throws Error(peer) where not every rank has come within the time
// of TRIREME_START_SECONDS (300): the others may hang for good, so that the job must be aborted.
void meet_all_ranks(int rank, int size, const std::string& host);

}  // namespace trireme
