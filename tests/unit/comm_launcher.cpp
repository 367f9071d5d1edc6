// What launchers say about the world, and what is wrong with it: environments as launchers leave
// them.
#include <gtest/gtest.h>

#include <map>

#include "trireme/comm/launcher.hpp"

namespace trireme::test {
namespace {

using Variables = std::map<std::string, std::string>;

Environment of(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}
LauncherWorld world_of(const Variables& variables, const std::string& file = "") {
  return launcher_world(of(variables), [&](const std::string&) { return file; });
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Variables kSrun = {{"SLURM_JOB_ID", "7"},           {"SLURM_NTASKS", "8"},
                         {"SLURM_STEP_ID", "0"},          {"SLURM_PROCID", "5"},
                         {"SLURM_STEP_NUM_TASKS", "4"},   {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_JOB_NUM_NODES", "3"},    {"PMIX_RANK", "5"},
                         {"PMIX_NAMESPACE", "slurm.pmix"}};

TEST(LauncherWorld, SrunCountsItsStepNotTheAllocation) {
  const LauncherWorld world = world_of(kSrun);
  EXPECT_TRUE(world.srun);
  EXPECT_EQ(world.ranks.count, 4);
  EXPECT_EQ(world.nodes.count, 2);
  EXPECT_EQ(world.task, 5);
}

// Inside an allocation the SLURM_ variables of a rank are those of mpirun's daemon.
TEST(LauncherWorld, MpirunGoesBeforeSlurm) {
  Variables variables = kSrun;
  variables["OMPI_COMM_WORLD_SIZE"] = "6";
  variables["OMPI_COMM_WORLD_RANK"] = "2";
  variables["SLURM_STEP_NUM_TASKS"] = "3";  // one daemon a host
  const LauncherWorld world = world_of(variables);
  EXPECT_FALSE(world.srun);
  EXPECT_EQ(world.ranks.count, 6);
  EXPECT_EQ(world.nodes.count, 3);
  EXPECT_EQ(world.task, 2);
}

TEST(LauncherWorld, ExplicitNumbersGoFirst) {
  Variables variables = kSrun;
  variables["TRIREME_RANKS"] = "12";
  variables["TRIREME_NODES"] = "5";
  EXPECT_EQ(world_of(variables).ranks.count, 12);
  EXPECT_EQ(world_of(variables).nodes.from, "TRIREME_NODES");
}

TEST(LauncherWorld, HostFilesOfKubeflowNameTheHosts) {
  const std::string file =
      "# hosts\njob-worker-0.job.ns.svc slots=4\n\njob-worker-1.job.ns.svc slots=4\n";
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"}) {
    const LauncherWorld world =
        world_of({{"OMPI_COMM_WORLD_SIZE", "8"}, {name, "/etc/mpi/hostfile"}}, file);
    EXPECT_EQ(world.nodes.count, 2) << name;
    // Open MPI 5 reads neither of them: all ranks are on the launcher.
    const std::string fault = world_fault(world, 8, 1);
    EXPECT_TRUE(has(fault, "/etc/mpi/hostfile")) << fault;
    EXPECT_TRUE(has(fault, "says 2 hosts, the 8 ranks are on 1")) << fault;
    EXPECT_EQ(world_fault(world, 8, 2), "");
  }
  // On a worker the variable is known, the file is not.
  EXPECT_EQ(world_of({{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}}).nodes.count, 0);
}

TEST(LauncherWorld, OddValuesAreNoNumbers) {
  for (const char* text : {"", "-3", "4x", "four", "0", "99999999999"})
    EXPECT_EQ(world_of({{"OMPI_COMM_WORLD_SIZE", text}}).ranks.count, 0) << text;
  EXPECT_EQ(world_of({}).ranks.count, 0);
  EXPECT_EQ(world_fault(world_of({}), 3, 2), "");
}

TEST(WorldFault, SingletonsAreRefusedOnceInFull) {
  Variables variables = kSrun;
  variables["SLURM_PROCID"] = "0";
  std::string fault = world_fault(world_of(variables), 1, 1);
  EXPECT_TRUE(has(fault, "SLURM_STEP_NUM_TASKS says 4 ranks, MPI gives 1")) << fault;
  EXPECT_TRUE(has(fault, "srun --mpi=pmix")) << fault;
  fault = world_fault(world_of(kSrun), 1, 1);
  EXPECT_EQ(fault, "task 5 is alone, too: see the message of task 0");
  // A batch script that forgot the launcher.
  fault = world_fault(world_of({{"SLURM_NTASKS", "16"}}), 1, 1);
  EXPECT_TRUE(has(fault, "SLURM_NTASKS says 16 ranks")) << fault;
}

TEST(WorldFault, TooFewTooManyAndSilentHosts) {
  const LauncherWorld world = world_of(kSrun);
  EXPECT_EQ(world_fault(world, 4, 2), "");
  EXPECT_TRUE(has(world_fault(world, 3, 2), "says 4 ranks, MPI gives 3"));
  EXPECT_TRUE(has(world_fault(world, 4, 1), "a host is silent"));
  EXPECT_TRUE(has(world_fault(world, 4, 3), "more hosts take part"));
  EXPECT_TRUE(has(world_fault(world, 4, 3), "--grid.nodes=3"));
}

TEST(StartFault, SrunWithoutAPmiThatOpenMpiKnows) {
  const std::string library = "Open MPI v4.1.4, package: Debian OpenMPI";
  EXPECT_EQ(start_fault(world_of(kSrun), of(kSrun), library), "");
  Variables none = kSrun;
  none.erase("PMIX_RANK");
  none.erase("PMIX_NAMESPACE");
  std::string fault = start_fault(world_of(none), of(none), library);
  EXPECT_TRUE(has(fault, "offers no PMI that Open MPI v4.1.4 can use")) << fault;
  Variables old = none;
  old["PMI_RANK"] = "5";
  fault = start_fault(world_of(old), of(old), library);
  EXPECT_TRUE(has(fault, "PMI-1 or PMI-2 only, no PMIx")) << fault;
  // MPICH lives by these; and one task needs nothing.
  EXPECT_EQ(start_fault(world_of(old), of(old), "MPICH Version: 4.0.2"), "");
  none["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(start_fault(world_of(none), of(none), library), "");
}

}  // namespace
}  // namespace trireme::test
