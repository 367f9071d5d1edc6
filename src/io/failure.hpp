// Failures as values, so that ranks can agree on them before any of them throws.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme::io {

struct Failure {
  ExitCode code = ExitCode::internal;
  std::string text;
};

// Runs `work` (which makes no collective call) and gives back what it threw.
template <class Work>
std::optional<Failure> attempt(Work&& work) {
  try {
    std::forward<Work>(work)();
    return std::nullopt;
  } catch (const Error& error) {
    return Failure{error.code(), error.what()};
  } catch (const std::exception& error) {
    return Failure{ExitCode::internal, error.what()};
  }
}

// Collective. The failure of the lowest rank that has one, on every rank.
inline std::optional<Failure> first_failure(const Communicator& world,
                                            const std::optional<Failure>& mine) {
  std::string packed;
  if (mine) packed = fmt::format("{} {}", static_cast<int>(mine->code), mine->text);
  if (!world.any(mine.has_value())) return std::nullopt;
  for (const std::string& theirs : world.gather_all(packed)) {
    if (theirs.empty()) continue;
    const size_t space = theirs.find(' ');
    return Failure{static_cast<ExitCode>(std::stoi(theirs)), theirs.substr(space + 1)};
  }
  return Failure{ExitCode::internal, "a rank failed and did not say why"};
}

// Collective. Throws the same Error on every rank when any rank has a failure.
inline void throw_first(const Communicator& world, const std::optional<Failure>& mine) {
  world.require_all(!mine.has_value(), mine ? mine->code : ExitCode::internal,
                    mine ? mine->text : "");
}

}  // namespace trireme::io
