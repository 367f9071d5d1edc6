// How a command that runs on all ranks begins: what the launcher promised, whether all ranks run
// the same program with the same deck, which device each one takes, and who is where. Everything is
// checked before data are touched; what is wrong ends all ranks with one message.
#pragma once

#include <string>

#include "trireme/base/log.hpp"
#include "trireme/comm/launcher.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/comm/process_grid.hpp"
#include "trireme/config/settings.hpp"

namespace trireme::app {

// To be called before MPI starts. Throws Error(bad_config) where it cannot start as one job.
LauncherWorld read_launcher();

// Collective. Throws Error(bad_config) on all ranks that names the ranks whose program is another
// build; `expected` is checked where it says anything, the deck's grid.ranks and grid.nodes go
// first.
void require_same_program(const MpiSession& session);
void require_expected_world(const MpiSession& session, LauncherWorld expected,
                            const GridSettings& grid);
// The same for commands that may also run as one process inside an allocation: ranks that a
// launcher started must be one job, however many hosts they are on.
void require_one_job(const MpiSession& session, LauncherWorld expected);
// Collective. Throws where resolved decks differ between ranks (their command lines do).
void require_same_deck(const MpiSession& session, const Settings& settings);

// Collective over each host. The place of this rank among those that see the same devices, in both
// regimes: all devices of the host, or one for each rank.
DeviceOptions device_options(const MpiSession& session, const Settings& settings);

// Collective. Throws where a tp group leaves its host and the deck does not allow it. Prints the
// table of ranks, and warnings about hosts.
void report_places(const MpiSession& session, const GridShape& shape, const Settings& settings,
                   const Log& log);

// Collective. One rank of each host calls all other hosts by TCP on the interface that NCCL will
// use. Throws Error(peer) on all ranks that names the pairs which do not answer; where MPI moves
// the data, which may have other ways, they are warned of. Nothing on one host.
void check_network(const MpiSession& session, const Settings& settings, const Log& log);

}  // namespace trireme::app
