// Private to convert: what fails on one rank fails on all.
#pragma once

#include <string>
#include <utility>

#include "trireme/comm/communicator.hpp"

namespace trireme::convert {

// Collective. Runs `work`, which makes no collective call, and throws the first failure everywhere.
template <class Work>
void together(const Communicator& world, Work&& work) {
  ExitCode code = ExitCode::ok;
  std::string text;
  try {
    std::forward<Work>(work)();
  } catch (const Error& e) {
    code = e.code();
    text = e.what();
  } catch (const std::exception& e) {
    code = ExitCode::internal;
    text = e.what();
  }
  world.require_all(code == ExitCode::ok, code, text);
}

}  // namespace trireme::convert
