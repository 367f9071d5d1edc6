// Starting and ending MPI.
#include "trireme/comm/mpi_session.hpp"

#include <mpi.h>

#include <exception>
#include <numeric>
#include <vector>

#include "comm/communicator_state.hpp"
#include "comm/first_contact.hpp"
#include "comm/mpi_check.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

std::string host_name() {
  char text[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  check_mpi(MPI_Get_processor_name(text, &length), "MPI_Get_processor_name");
  return std::string(text, static_cast<size_t>(length));
}

std::shared_ptr<SessionState> start_session(int& argc, char**& argv) {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  require(
      level >= MPI_THREAD_FUNNELED, ExitCode::peer,
      "this MPI grants thread level {} where MPI_THREAD_FUNNELED ({}) is needed: use an MPI built "
      "with thread support",
      level, MPI_THREAD_FUNNELED);
  auto session = std::make_shared<SessionState>();
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &session->rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &session->size), "MPI_Comm_size");
  session->host = host_name();
  meet_all_ranks(session->rank, session->size, session->host);
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &session->failures), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(session->failures, MPI_ERRORS_RETURN),
            "MPI_Comm_set_errhandler");
  return session;
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  std::shared_ptr<SessionState> session = start_session(argc, argv);
  host_ = session->host;
  MPI_Comm world = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  world_ = std::make_unique<Communicator>(
      std::make_unique<Communicator::State>(session, world, "world"));

  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, session->rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(node, &node_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node, &node_ranks_), "MPI_Comm_size");
  int leader = session->rank;
  check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, node), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  std::vector<uint64_t> leads(static_cast<size_t>(session->size));
  leads[static_cast<size_t>(session->rank)] = node_rank_ == 0 ? 1 : 0;
  world_->sum_each(leads);
  const auto leaders_before = [&](int rank) {
    return static_cast<int>(std::accumulate(leads.begin(), leads.begin() + rank, uint64_t{0}));
  };
  node_ = leaders_before(leader);
  nodes_ = leaders_before(session->size);
}

// MPI_Finalize waits for every rank. A rank that leaves because of an exception, or whose
// communication was dropped, must not enter it: it exits, and the launcher ends the others.
MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  SessionState& session = *world_->state().session;
  const bool broken = std::uncaught_exceptions() > 0 || session.abandoned || !session.work.empty();
  if (finalized != 0 || broken) return;
  MPI_Comm_free(&session.failures);
  world_.reset();
  MPI_Finalize();
}

std::string MpiSession::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  std::string version(text, static_cast<size_t>(length));
  version.resize(version.find_first_of(",\n") == std::string::npos ? version.size()
                                                                   : version.find_first_of(",\n"));
  // Open MPI puts a "v" before its number.
  if (const size_t v = version.find(" v"); v != std::string::npos) version.erase(v + 1, 1);
  return version;
}

}  // namespace trireme::inline TRIREME_BACKEND
