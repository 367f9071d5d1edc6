// Making, splitting and freeing groups of ranks.
#include "trireme/comm/communicator.hpp"

#include <numeric>

#include "comm/communicator_state.hpp"
#include "comm/mpi_check.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

std::vector<int> world_ranks_of(MPI_Comm handle, int size) {
  MPI_Group mine = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(handle, &mine), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  std::vector<int> here(static_cast<size_t>(size)), there(static_cast<size_t>(size));
  std::iota(here.begin(), here.end(), 0);
  check_mpi(MPI_Group_translate_ranks(mine, size, here.data(), world, there.data()),
            "MPI_Group_translate_ranks");
  check_mpi(MPI_Group_free(&mine), "MPI_Group_free");
  check_mpi(MPI_Group_free(&world), "MPI_Group_free");
  return there;
}

}  // namespace

Communicator::State::State(std::shared_ptr<SessionState> owner, MPI_Comm taken,
                           std::string_view group_name)
    : session(std::move(owner)), handle(taken), name(group_name) {
  check_mpi(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_name(handle, name.c_str()), "MPI_Comm_set_name");
  check_mpi(MPI_Comm_rank(handle, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(handle, &size), "MPI_Comm_size");
  world_ranks = world_ranks_of(handle, size);
}

// Freeing a group enters MPI, which could then write into buffers of unfinished operations that are
// gone already: after a failure the handle is left to the end of the process.
Communicator::State::~State() {
  data_plane.reset();
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !session->abandoned && session->work.empty()) MPI_Comm_free(&handle);
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const {
  return state_->rank;
}
int Communicator::size() const {
  return state_->size;
}
std::string_view Communicator::name() const {
  return state_->name;
}
const std::vector<int>& Communicator::world_ranks() const {
  return state_->world_ranks;
}
const void* Communicator::native_mpi() const {
  return &state_->handle;
}

Communicator Communicator::split(int colour, int key, std::string_view group_name) const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(state_->handle, colour < 0 ? MPI_UNDEFINED : colour, key, &part),
            "MPI_Comm_split");
  if (part == MPI_COMM_NULL) check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &part), "MPI_Comm_dup");
  auto state = std::make_unique<State>(state_->session, part, group_name);
  state->limits = state_->limits;
  return Communicator(std::move(state));
}

}  // namespace trireme::inline TRIREME_BACKEND
