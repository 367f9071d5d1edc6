// The benches, one file each. They run inside an MPI session; a single process is a session of one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/comm/mpi_session.hpp"

namespace trireme::app {

int bench_step(MpiSession& session, std::vector<std::string> words, const std::string& usage);
// Every operation of ops.hpp on one device: checked first, then timed. Local: a session of one.
int bench_ops(MpiSession& session, std::vector<std::string> words, const std::string& usage);
// The groups of a process grid: checked first, then timed; slow ranks are named. Collective.
int bench_comm(MpiSession& session, std::vector<std::string> words, const std::string& usage);
// Saving and loading a state in a directory, beside plain files and copies. Collective.
int bench_save(MpiSession& session, std::vector<std::string> words, const std::string& usage);

}  // namespace trireme::app
