// What the launcher says about the job, read from its environment: how many ranks and hosts there
// must be. MPI itself cannot tell when a job falls apart: a launcher that does not reach the
// library's PMI starts N jobs of one rank each, and a host file that is not read puts all ranks on
// one host. Pure, no MPI.
#pragma once

#include <functional>
#include <string>

namespace trireme {

// Value of a variable; null where it is not set.
using Environment = std::function<const char*(const char*)>;

struct Expected {
  int count = 0;     // 0: unknown
  std::string from;  // who says so: "SLURM_STEP_NUM_TASKS"
};

struct LauncherWorld {
  Expected ranks, nodes;
  int task = 0;       // this process among those of the launcher
  bool srun = false;  // started by srun itself, not by an mpirun inside the allocation
};

// `read_file` gives the text of a file, "" where it cannot be read (a host file is read on the
// launcher's host only). Explicit TRIREME_RANKS and TRIREME_NODES go first, then mpirun, srun,
// other launchers; nodes are those of the allocation.
LauncherWorld launcher_world(const Environment& get,
                             const std::function<std::string(const std::string&)>& read_file);

// Why MPI cannot start under this srun, or "": it offers no PMI that `library` (as
// MPI_Get_library_version names it) can use. To be asked before MPI starts: the library's own
// message is long and names no remedy, and some versions start as single ranks.
std::string start_fault(const LauncherWorld& world, const Environment& get,
                        const std::string& library);

// What is wrong with a world of so many ranks on so many hosts, or "". Says what was expected by
// whom, and the remedy.
std::string world_fault(const LauncherWorld& expected, int ranks, int nodes);

}  // namespace trireme
