// Signals as one question: should the run stop, or save?
//
// SIGUSR1 means save and stop, SIGUSR2 save and go on. SIGTERM and SIGINT mean save and stop, but
// only a launcher's grace is left before it kills, so that a save may be too long to start.
// Handlers are installed for the lifetime of the object; a second signal is harmless. Local: the
// trainer makes the ranks agree.
#pragma once

#include <csignal>

namespace trireme {

enum class Stop : int {
  none = 0,
  save = 1,    // SIGUSR2: save and go on
  asked = 2,   // SIGUSR1: there is time
  urgent = 3,  // SIGTERM or SIGINT: a kill follows after the grace
};

class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // The strongest request so far.
  Stop requested() const;
  // A save is over: what asked for no more than one is answered.
  void saved() const;

 private:
  struct sigaction old_usr1_ = {}, old_usr2_ = {}, old_term_ = {}, old_int_ = {};
};

}  // namespace trireme
