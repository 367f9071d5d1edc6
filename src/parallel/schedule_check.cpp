// The fault finder: completeness and order inside each stage, then a run of all stages together.
#include <fmt/format.h>

#include "parallel/schedule_simulation.hpp"
#include "trireme/parallel/schedule.hpp"

namespace trireme {
namespace {

constexpr int kVerbs = 7;
constexpr int kAbsent = -1;

bool trains(std::span<const ActionList> lists) {
  for (const ActionList& list : lists)
    for (const Action& action : list)
      if (action.verb == Verb::backward || action.verb == Verb::receive_gradient ||
          action.verb == Verb::send_gradient || action.verb == Verb::sync_gradients)
        return true;
  return false;
}

// Where each action of a stage stands in its list.
class StageIndex {
 public:
  StageIndex(const PipelineShape& shape, int stage)
      : shape_(shape),
        stage_(stage),
        place_(static_cast<size_t>(kVerbs * shape.chunks * shape.micro_batches), kAbsent) {}

  std::optional<std::string> fill(const ActionList& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      if (action.chunk < 0 || action.chunk >= shape_.chunks || action.micro_batch < 0 ||
          action.micro_batch >= shape_.micro_batches)
        return fmt::format("stage {}: {} does not exist", stage_, text_of(action));
      int& place = at(action);
      if (place != kAbsent)
        return fmt::format("stage {}: {} stands twice, at actions {} and {}", stage_,
                           text_of(action), place, i);
      place = static_cast<int>(i);
    }
    return std::nullopt;
  }

  std::optional<std::string> check_presence(Action action, bool expected) {
    const bool present = at(action) != kAbsent;
    if (present == expected) return std::nullopt;
    return fmt::format("stage {}: {} {}", stage_, text_of(action),
                       present ? "has no place here" : "is missing");
  }

  std::optional<std::string> check_order(Action action, Verb first, Verb second) {
    const int a = at({first, action.chunk, action.micro_batch});
    const int b = at({second, action.chunk, action.micro_batch});
    if (a == kAbsent || b == kAbsent || a < b) return std::nullopt;
    return fmt::format("stage {}: {} comes before {}", stage_,
                       text_of({second, action.chunk, action.micro_batch}),
                       text_of({first, action.chunk, action.micro_batch}));
  }

 private:
  int& at(const Action& action) {
    const auto verb = static_cast<size_t>(action.verb);
    return place_[(verb * shape_.chunks + action.chunk) * shape_.micro_batches +
                  action.micro_batch];
  }

  PipelineShape shape_;
  int stage_;
  std::vector<int> place_;
};

std::optional<std::string> check_unit(StageIndex& index, const PipelineShape& shape, int stage,
                                      Action unit, bool training) {
  const bool first = shape.is_first(stage, unit.chunk);
  const bool last = shape.is_last(stage, unit.chunk);
  const std::pair<Verb, bool> presence[] = {
      {Verb::receive_activation, !first}, {Verb::forward, true},
      {Verb::send_activation, !last},     {Verb::receive_gradient, training && !last},
      {Verb::backward, training},         {Verb::send_gradient, training && !first},
  };
  for (const auto& [verb, expected] : presence)
    if (auto fault = index.check_presence({verb, unit.chunk, unit.micro_batch}, expected))
      return fault;
  constexpr std::pair<Verb, Verb> kOrder[] = {
      {Verb::receive_activation, Verb::forward}, {Verb::forward, Verb::send_activation},
      {Verb::forward, Verb::backward},           {Verb::receive_gradient, Verb::backward},
      {Verb::backward, Verb::send_gradient},
  };
  for (const auto& [before, after] : kOrder)
    if (auto fault = index.check_order(unit, before, after)) return fault;
  return std::nullopt;
}

std::optional<std::string> check_stage(const ActionList& list, const PipelineShape& shape,
                                       int stage, bool training) {
  StageIndex index(shape, stage);
  if (auto fault = index.fill(list)) return fault;
  for (int chunk = 0; chunk < shape.chunks; ++chunk)
    for (int m = 0; m < shape.micro_batches; ++m)
      if (auto fault = check_unit(index, shape, stage, {Verb::forward, chunk, m}, training))
        return fault;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].verb == Verb::sync_gradients && i + 1 != list.size())
      return fmt::format("stage {}: gradients are synchronised at action {} of {}, before the end",
                         stage, i, list.size());
  if (training && list.back().verb != Verb::sync_gradients)
    return fmt::format("stage {}: gradients are never synchronised", stage);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_fault(std::span<const ActionList> lists,
                                      const PipelineShape& shape) {
  if (lists.size() != static_cast<size_t>(shape.stages))
    return fmt::format("{} lists for {} stages", lists.size(), shape.stages);
  const bool training = trains(lists);
  for (int stage = 0; stage < shape.stages; ++stage)
    if (auto fault = check_stage(lists[static_cast<size_t>(stage)], shape, stage, training))
      return fault;
  return simulate(lists, shape).fault;
}

}  // namespace trireme
