#include "trireme/train/stop_request.hpp"

namespace trireme {
namespace {

// A signal handler can reach nothing else: the one mutable variable of the program at this scope.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
volatile std::sig_atomic_t g_stop = 0;

void on_signal(int signal) {
  const int level = static_cast<int>(signal == SIGUSR1 ? Stop::asked : Stop::urgent);
  if (level > g_stop) g_stop = level;
}

void install(int signal, struct sigaction* old) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, old);
}

}  // namespace

StopRequest::StopRequest() {
  g_stop = 0;
  install(SIGUSR1, &old_usr1_);
  install(SIGTERM, &old_term_);
  install(SIGINT, &old_int_);
}

StopRequest::~StopRequest() {
  sigaction(SIGUSR1, &old_usr1_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGINT, &old_int_, nullptr);
}

Stop StopRequest::requested() const {
  return static_cast<Stop>(static_cast<int>(g_stop));
}

}  // namespace trireme
