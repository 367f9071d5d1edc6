// A thread beside the main one: signals stay with the main thread, MPI too.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace trireme::io {

// While it lives, no signal is delivered to this thread, nor to threads that it starts.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_ = {};
};

template <class Work>
std::thread plain_thread(Work&& work) {
  const NoSignals mask;
  return std::thread(std::forward<Work>(work));
}

}  // namespace trireme::io
