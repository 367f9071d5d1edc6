// Local steps whose failure all ranks share.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Collective. Runs `step`, which makes no collective call, and throws the failure of the first rank
// that has one on every rank, with its code and text.
template <class Step>
void together(const Communicator& world, Step&& step) {
  ExitCode code = ExitCode::ok;
  std::string text;
  try {
    std::forward<Step>(step)();
  } catch (const Error& e) {
    code = e.code();
    text = e.what();
  } catch (const std::exception& e) {
    code = ExitCode::internal;
    text = e.what();
  }
  world.require_all(code == ExitCode::ok, code, text);
}

}  // namespace trireme::inline TRIREME_BACKEND
