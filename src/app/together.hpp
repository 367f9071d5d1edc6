// Local steps whose failure all ranks share.
#pragma once

#include <string>

#include "trireme/base/error.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme::app {

// Runs a local step and makes its failure that of all ranks. Collective.
template <class Step>
void together(const Communicator& world, Step&& step) {
  ExitCode code = ExitCode::ok;
  std::string text;
  try {
    step();
  } catch (const Error& e) {
    code = e.code();
    text = e.what();
  } catch (const std::exception& e) {
    code = ExitCode::internal;
    text = e.what();
  }
  const auto worst = static_cast<ExitCode>(world.max(static_cast<int64_t>(code)));
  world.require_all(code == ExitCode::ok, worst, text);
}

}  // namespace trireme::app
