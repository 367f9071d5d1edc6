// What a test on several ranks can use: the session, a device, and a connected group of all ranks.
//
// Every rank runs the same tests in the same order. Assertions are local; the verdicts of all ranks
// are gathered once, when a test has ended on every rank. An exception on any rank ends the job.
#pragma once

#include "trireme/comm/communicator.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/device/device.hpp"

namespace trireme::test {

// Valid inside tests of programs that link rank_main.cpp. Owned by its main.
MpiSession& session();
Device& device();
const Communicator& world();

}  // namespace trireme::test
