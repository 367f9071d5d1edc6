// Draws the timeline of a set of lists and computes the bubble.
#include <fmt/format.h>

#include <algorithm>

#include "parallel/schedule_simulation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/parallel/schedule.hpp"

namespace trireme {
namespace {

Simulation sound_simulation(std::span<const ActionList> lists, const PipelineShape& shape) {
  const std::optional<std::string> fault = find_fault(lists, shape);
  require(!fault, ExitCode::internal, "pipeline schedule is broken: {}", fault.value_or(""));
  return simulate(lists, shape);
}

bool computes(const Action& action) {
  return action.verb == Verb::forward || action.verb == Verb::backward;
}

double bubble_of(const Simulation& simulation) {
  int64_t ideal = 0;
  for (const auto& stage : simulation.stages) {
    int64_t busy = 0;
    for (const TimedAction& timed : stage)
      if (computes(timed.action)) busy += timed.end - timed.start;
    ideal = std::max(ideal, busy);
  }
  return static_cast<double>(simulation.length - ideal) / static_cast<double>(ideal);
}

std::string label_of(const Action& action, const PipelineShape& shape) {
  if (shape.chunks == 1) return fmt::format("{}", action.micro_batch);
  return fmt::format("{}{}", static_cast<char>('a' + action.chunk % 26), action.micro_batch);
}

// `unit` characters stand for one unit of time; idle time is dots.
std::string draw_stage(const std::vector<TimedAction>& stage, const PipelineShape& shape,
                       int64_t length, size_t unit) {
  std::string line(static_cast<size_t>(length) * unit, '.');
  for (const TimedAction& timed : stage) {
    if (!computes(timed.action)) continue;
    const size_t width = static_cast<size_t>(timed.end - timed.start) * unit;
    const std::string label = label_of(timed.action, shape);
    const std::string cell = timed.action.verb == Verb::forward
                                 ? fmt::format("{:>{}}", label, width)
                                 : fmt::format("[{:^{}}]", label, width - 2);
    line.replace(static_cast<size_t>(timed.start) * unit, width, cell);
  }
  return line;
}

}  // namespace

double bubble(std::span<const ActionList> lists, const PipelineShape& shape) {
  return bubble_of(sound_simulation(lists, shape));
}

std::string draw(std::span<const ActionList> lists, const PipelineShape& shape, int columns) {
  const Simulation simulation = sound_simulation(lists, shape);
  const Action widest{Verb::forward, 0, shape.micro_batches - 1};
  const size_t unit = label_of(widest, shape).size() + 1;
  const size_t limit = static_cast<size_t>(std::max(columns, 20));
  std::string text;
  for (size_t s = 0; s < simulation.stages.size(); ++s) {
    std::string line = fmt::format(
        "stage {:>2} |{}|", s, draw_stage(simulation.stages[s], shape, simulation.length, unit));
    if (line.size() > limit) line = line.substr(0, limit - 1) + ">";
    text += line + "\n";
  }
  const double lost = bubble_of(simulation);
  text += fmt::format(
      "time to the right: forward 1 unit, [backward] 2 units, dots idle; bubble {:.2f} % of ideal "
      "compute time, {:.2f} % of the step\n",
      100 * lost, 100 * lost / (1 + lost));
  return text;
}

}  // namespace trireme
