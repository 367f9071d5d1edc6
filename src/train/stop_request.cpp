#include "trireme/train/stop_request.hpp"

#include <atomic>

namespace trireme {
namespace {

// A signal handler can reach nothing else: the one mutable variable of the program at this scope.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int> g_stop{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  Stop asked = Stop::urgent;
  if (signal == SIGUSR1) asked = Stop::asked;
  if (signal == SIGUSR2) asked = Stop::save;
  int before = g_stop.load();
  while (before < static_cast<int>(asked) &&
         !g_stop.compare_exchange_weak(before, static_cast<int>(asked))) {
  }
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
  install(SIGUSR2, &old_usr2_);
  install(SIGTERM, &old_term_);
  install(SIGINT, &old_int_);
}

StopRequest::~StopRequest() {
  sigaction(SIGUSR1, &old_usr1_, nullptr);
  sigaction(SIGUSR2, &old_usr2_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGINT, &old_int_, nullptr);
}

Stop StopRequest::requested() const {
  return static_cast<Stop>(g_stop.load());
}

void StopRequest::saved() const {
  int save = static_cast<int>(Stop::save);
  g_stop.compare_exchange_strong(save, static_cast<int>(Stop::none));
}

}  // namespace trireme
