#include "comm/first_contact.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "comm/mpi_check.hpp"
#include "trireme/comm/network.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::duration<double> time_to_start() {
  constexpr double kSeconds = 300;
  const char* text = std::getenv("TRIREME_START_SECONDS");
  if (text == nullptr) return std::chrono::duration<double>(kSeconds);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  require(end != text && *end == '\0' && seconds > 0 && seconds < 1e7, ExitCode::bad_config,
          "TRIREME_START_SECONDS={}: a number of seconds above 0 is needed", text);
  return std::chrono::duration<double>(seconds);
}

std::string addresses_here() {
  std::string text;
  for (const NetworkAddress& one : network_addresses())
    if (one.interface != "lo")
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one.interface, one.address);
  return text;
}

}  // namespace

void meet_all_ranks(int rank, int size, const std::string& host) {
  const auto limit = time_to_start();
  // Rank 0 speaks for all: the others give it time to.
  constexpr std::chrono::duration<double> kForRank0(2);
  const auto end = Clock::now() + limit + (rank == 0 ? kForRank0 * 0 : kForRank0);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    require(Clock::now() < end, ExitCode::peer,
            "MPI has not brought all {} ranks together within {:g} s. Addresses of {}: {}. Where "
            "hosts have an interface with the same address (a bridge of containers), name one that "
            "leads to all: mpirun --mca btl_tcp_if_include eth0, or OMPI_MCA_btl_tcp_if_include; "
            "where a firewall stands between them, let the ports of net.ipv4.ip_local_port_range "
            "pass. TRIREME_START_SECONDS gives more time",
            size, limit.count(), host, addresses_here());
    usleep(200);
  }
}

}  // namespace trireme
