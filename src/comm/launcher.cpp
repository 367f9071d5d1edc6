// The variables of mpirun, srun, Flux, PMI and of Kubeflow's host files: see the header.
#include "trireme/comm/launcher.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <set>
#include <sstream>
#include <string_view>

namespace trireme {
namespace {

int number(const char* text) {
  if (text == nullptr) return 0;
  const std::string_view all(text);
  int value = 0;
  const auto [end, fault] = std::from_chars(all.data(), all.data() + all.size(), value);
  return fault == std::errc() && end == all.data() + all.size() && value > 0 ? value : 0;
}

Expected first_of(const Environment& get, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const int count = number(get(name)); count > 0) return {count, name};
  return {};
}

// Hosts of a host file: the first word of each line that is no comment.
int hosts_of(const std::string& text) {
  std::set<std::string> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string host;
    if (words >> host && host[0] != '#') hosts.insert(host);
  }
  return static_cast<int>(hosts.size());
}

// Kubeflow's operators name a host file. Open MPI 5 does not read the first of these names: then
// every rank is on the launcher's host, where the file can be read.
Expected hosts_in_file(const Environment& get,
                       const std::function<std::string(const std::string&)>& read_file) {
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"}) {
    const char* path = get(name);
    if (path == nullptr) continue;
    if (const int hosts = hosts_of(read_file(path)); hosts > 0)
      return {hosts, fmt::format("{} ({})", path, name)};
  }
  return {};
}

}  // namespace

LauncherWorld launcher_world(const Environment& get,
                             const std::function<std::string(const std::string&)>& read_file) {
  LauncherWorld world;
  const bool by_mpirun = get("OMPI_COMM_WORLD_SIZE") != nullptr;
  // Inside an allocation the daemons of mpirun are a step, too: its SLURM_ variables are not ours.
  world.srun = !by_mpirun && get("SLURM_STEP_ID") != nullptr && get("SLURM_PROCID") != nullptr &&
               number(get("SLURM_STEP_NUM_TASKS")) > 0;
  if (by_mpirun)
    world.ranks = first_of(get, {"TRIREME_RANKS", "OMPI_COMM_WORLD_SIZE"});
  else if (world.srun)
    world.ranks = first_of(get, {"TRIREME_RANKS", "SLURM_STEP_NUM_TASKS"});
  else
    world.ranks = first_of(get, {"TRIREME_RANKS", "PMI_SIZE", "MPI_LOCALNRANKS", "PALS_NRANKS",
                                 "FLUX_JOB_SIZE", "SLURM_NTASKS"});
  world.nodes = first_of(get, {"TRIREME_NODES"});
  if (world.nodes.count == 0) world.nodes = hosts_in_file(get, read_file);
  if (world.nodes.count == 0)
    world.nodes = world.srun ? first_of(get, {"SLURM_STEP_NUM_NODES"})
                             : first_of(get, {"SLURM_JOB_NUM_NODES", "FLUX_JOB_NNODES"});
  world.task = number(get(by_mpirun ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID"));
  return world;
}

std::string start_fault(const LauncherWorld& world, const Environment& get,
                        const std::string& library) {
  const bool open_mpi = library.find("Open MPI") != std::string::npos;
  if (!world.srun || world.ranks.count <= 1 || !open_mpi) return "";
  const bool pmix = get("PMIX_NAMESPACE") != nullptr || get("PMIX_RANK") != nullptr;
  const bool old_pmi = get("PMI_FD") != nullptr || get("PMI_RANK") != nullptr;
  if (pmix) return "";
  return fmt::format(
      "srun started {} tasks but offers {} that {} can use: each task would be alone. Start with "
      "srun --mpi=pmix (srun --mpi=list shows what this SLURM has; SLURM_MPI_TYPE sets the "
      "default), or with mpirun inside the allocation",
      world.ranks.count, old_pmi ? "PMI-1 or PMI-2 only, no PMIx" : "no PMI",
      library.substr(0, library.find(',')));
}

std::string world_fault(const LauncherWorld& expected, int ranks, int nodes) {
  const Expected& r = expected.ranks;
  const Expected& n = expected.nodes;
  if (r.count > 0 && ranks == 1 && r.count > 1) {
    if (expected.task > 0)
      return fmt::format("task {} is alone, too: see the message of task 0", expected.task);
    return fmt::format(
        "{} says {} ranks, MPI gives 1: this rank is alone, and so is each of the others. {}. If "
        "one rank is meant: --grid.ranks=1 --grid.nodes=1",
        r.from, r.count,
        expected.srun ? "srun did not reach this MPI library: use srun --mpi=pmix (srun --mpi=list "
                        "shows what there is), or mpirun inside the allocation"
                      : "Start it with the mpirun (or srun --mpi=pmix) of the MPI library that it "
                        "was built with, not with another one and not without");
  }
  if (r.count > 0 && ranks != r.count)
    return fmt::format(
        "{} says {} ranks, MPI gives {}: some did not start or too many did. Give the launcher "
        "-n {}, or say what is meant: --grid.ranks={}",
        r.from, r.count, ranks, r.count, ranks);
  if (n.count > 0 && nodes != n.count)
    return fmt::format(
        "{} says {} hosts, the {} ranks are on {}: {}. If this is meant: --grid.nodes={}", n.from,
        n.count, ranks, nodes,
        nodes < n.count
            ? "a host is silent. Give mpirun --hostfile, -n and --map-by ppr:N:node (Open MPI 5 "
              "does not read the host file that Kubeflow's variables name), or check that -n fills "
              "all hosts"
            : "more hosts take part than were asked for. Check --host, the host file and its slots",
        nodes);
  return "";
}

}  // namespace trireme
