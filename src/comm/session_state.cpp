// The list of communication in flight, and the wait that keeps all of it moving.
#include "comm/session_state.hpp"

#include <algorithm>
#include <thread>

#include "comm/mpi_check.hpp"

namespace trireme::inline TRIREME_BACKEND {

void check_mpi(int code, std::string_view call, std::source_location where) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw MpiError(ExitCode::peer,
                 fmt::format("{} failed: {} (MPI error {})", call,
                             std::string_view(text, static_cast<size_t>(length)), code),
                 where);
}

void Patience::pause() {
  if (++polls_ > 200) std::this_thread::yield();
}

void SessionState::add(SteppedWork* item) {
  work.push_back(item);
}

void SessionState::remove(const SteppedWork* item) {
  std::erase(work, item);
}

void SessionState::poll() {
  for (size_t i = 0; i < work.size();) {
    if (work[i]->advance())
      work.erase(work.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
}

void SessionState::complete(std::span<MPI_Request> requests, std::string_view call) {
  int done = 0;
  for (Patience patience;; patience.pause()) {
    check_mpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        call);
    if (done != 0) return;
    poll();
  }
}

}  // namespace trireme::inline TRIREME_BACKEND
