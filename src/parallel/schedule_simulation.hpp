// Runs a set of action lists in unit time, with the buffers and the messages that `schedule.hpp`
// describes. Shared by the fault finder and the drawing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/parallel/schedule.hpp"

namespace trireme {

struct TimedAction {
  Action action;
  int64_t start = 0, end = 0;
};

struct Simulation {
  std::vector<std::vector<TimedAction>> stages;  // what ran, in order
  int64_t length = 0;                            // when the last stage ended
  std::optional<std::string> fault;              // a deadlock or messages out of order
};

// Expects lists whose work is complete (`find_fault` checks that first).
Simulation simulate(std::span<const ActionList> lists, const PipelineShape& shape);

}  // namespace trireme
