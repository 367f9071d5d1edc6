// How a failure ends the job: with one message, the right exit code on every rank, in bounded time.
//
// A rank that catches an error cannot know whether its peers caught it too. So it asks them, for a
// short while, on a communicator of its own: if all answer, one of them speaks and all leave in
// order; if not, the failure is this rank's alone (the others wait for it, or compute) and
// MPI_Abort ends the job.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <thread>

#include "comm/communicator_state.hpp"
#include "comm/mpi_check.hpp"
#include "trireme/base/random.hpp"
#include "trireme/comm/mpi_session.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a rank waits for its peers to fail as well.
constexpr milliseconds kWindow{700};
// Ranks that give up waiting speak one after the other, so that the first can end the others before
// they repeat it.
constexpr milliseconds kTurn{100};
constexpr int kTurns = 4;

struct Failure {
  ExitCode code = ExitCode::internal;
  std::string text;
  std::string who;  // empty: this rank, or all
  bool known_to_all = false;
  bool mpi_is_broken = false;
};

std::string place_of(const Error& error) {
  const char* file = error.where().file_name();
  const char* slash = std::strrchr(file, '/');
  return fmt::format(" [{}:{}]", slash == nullptr ? file : slash + 1, error.where().line());
}

Failure describe(const std::exception_ptr& caught) {
  try {
    std::rethrow_exception(caught);
  } catch (const AgreedError& e) {
    return {.code = e.code(), .text = e.what(), .who = e.who(), .known_to_all = e.whole_world()};
  } catch (const Error& e) {
    const bool mpi = dynamic_cast<const MpiError*>(&e) != nullptr;
    const bool ours = e.code() == ExitCode::internal;
    return {
        .code = e.code(), .text = ours ? e.what() + place_of(e) : e.what(), .mpi_is_broken = mpi};
  } catch (const std::bad_alloc&) {
    return {.text =
                "out of host memory: an allocation failed. `trireme plan` prints what the layout "
                "needs; use more ranks, or a smaller batch.micro"};
  } catch (const std::exception& e) {
    return {.text = fmt::format("unexpected failure: {}", e.what())};
  } catch (...) {
    return {.text = "unexpected failure of unknown type"};
  }
}

void print(const std::string& who, const Failure& failure) {
  const std::string line = fmt::format("trireme: error{}: {} (exit code {})\n", who, failure.text,
                                       static_cast<int>(failure.code));
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

// One rank's failure as the others see it: small and of fixed size.
struct Record {
  int64_t code;
  int64_t text_hash;
};

// Everybody's records if every rank fails within the window.
std::optional<std::vector<Record>> ask_peers(const SessionState& session, const Failure& failure) {
  const Record mine{static_cast<int64_t>(failure.code),
                    static_cast<int64_t>(name_hash(failure.text))};
  std::vector<Record> all(static_cast<size_t>(session.size));
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallgather(&mine, 2, MPI_INT64_T, all.data(), 2, MPI_INT64_T, session.failures,
                     &request) != MPI_SUCCESS)
    return std::nullopt;
  const auto end = Clock::now() + kWindow;
  int done = 0;
  while (Clock::now() < end) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return std::nullopt;
    if (done != 0) return all;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return std::nullopt;
}

// The rank that speaks for all: the lowest with a cause of its own, not one that lost a peer.
size_t speaker(const std::vector<Record>& all) {
  const auto cause = [](const Record& r) { return r.code != static_cast<int64_t>(ExitCode::peer); };
  const auto found = std::find_if(all.begin(), all.end(), cause);
  return found == all.end() ? 0 : static_cast<size_t>(found - all.begin());
}

int leave_together(const SessionState& session, const Failure& failure,
                   const std::vector<Record>& all) {
  const size_t first = speaker(all);
  if (static_cast<size_t>(session.rank) == first) {
    const auto same = [&](const Record& r) { return r.text_hash == all[first].text_hash; };
    const auto agreeing = std::count_if(all.begin(), all.end(), same);
    std::string who = failure.who;
    if (agreeing != session.size && who.empty())
      who = fmt::format(" on rank {} ({}), while other ranks report other errors", session.rank,
                        session.host);
    print(who, failure);
  }
  return static_cast<int>(all[first].code);
}

[[noreturn]] void end_job(int code) {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

int leave(const SessionState& session, const Failure& failure) {
  const int code = static_cast<int>(failure.code);
  const bool may_use_mpi = !session.abandoned && session.work.empty() && !failure.mpi_is_broken;
  if (session.size == 1 || (failure.known_to_all && may_use_mpi)) {
    if (session.rank == 0) print(failure.who, failure);
    return code;
  }
  if (may_use_mpi)
    if (const auto all = ask_peers(session, failure)) return leave_together(session, failure, *all);

  std::this_thread::sleep_for(kTurn * std::min(session.rank, kTurns));
  std::string who = failure.who;
  if (who.empty()) who = fmt::format(" on rank {} ({})", session.rank, session.host);
  if (!failure.known_to_all || session.rank == 0) print(who, failure);
  end_job(code);
}

// MPI cannot end in order while it holds buffers of operations that nobody waited for.
void require_settled(const SessionState& session) {
  require(!session.abandoned && session.work.empty(), ExitCode::internal,
          "the program returned while communication was pending: a stream was not synchronized");
}

}  // namespace

int run_guarded(MpiSession& session, const std::function<int()>& program) {
  std::exception_ptr caught;
  try {
    const int code = program();
    require_settled(*session.world().state().session);
    return code;
  } catch (...) {
    caught = std::current_exception();
  }
  std::fflush(nullptr);
  return leave(*session.world().state().session, describe(caught));
}

}  // namespace trireme::inline TRIREME_BACKEND
