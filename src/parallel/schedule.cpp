// Makes the action lists: first the order of compute, then the messages around it.
#include "trireme/parallel/schedule.hpp"

#include <algorithm>

#include "trireme/base/checked.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

void check_shape(const PipelineShape& shape, int stage) {
  require(shape.stages >= 1 && shape.chunks >= 1 && shape.micro_batches >= 1, ExitCode::bad_config,
          "a pipeline needs at least one stage, one chunk and one micro-batch; got {}, {} and {}",
          shape.stages, shape.chunks, shape.micro_batches);
  require(shape.stages > 1 || shape.chunks == 1, ExitCode::bad_config,
          "{} virtual stages on one pipeline stage bring nothing; set grid.virtual_stages to 1 or "
          "grid.pp above 1",
          shape.chunks);
  require(stage >= 0 && stage < shape.stages, ExitCode::internal, "no stage {} among {}", stage,
          shape.stages);
}

// The k-th forward of a stage: groups of `stages` micro-batches go through chunk 0, then chunk 1,
// ...
Action nth_forward(const PipelineShape& shape, int k) {
  const int group = shape.stages * shape.chunks;
  const int within = k % group;
  return {Verb::forward, within / shape.stages, (k / group) * shape.stages + within % shape.stages};
}

Action nth_backward(const PipelineShape& shape, int k) {
  const Action forward = nth_forward(shape, k);
  return {Verb::backward, shape.chunks - 1 - forward.chunk, forward.micro_batch};
}

// Warm-up forwards, then forward and backward in turn, then the rest of the backwards.
// Micro-batches beyond the last are left out: no action depends on another micro-batch, so what
// remains is in order.
ActionList compute_order(const PipelineShape& shape, int warm_up) {
  const int64_t whole =
      shape.chunks == 1 ? shape.micro_batches : round_up(shape.micro_batches, shape.stages);
  const int total = static_cast<int>(whole) * shape.chunks;
  warm_up = std::min(warm_up, total);
  ActionList order;
  const auto append = [&](const Action& action) {
    if (action.micro_batch < shape.micro_batches) order.push_back(action);
  };
  for (int k = 0; k < warm_up; ++k) append(nth_forward(shape, k));
  for (int k = warm_up; k < total; ++k) {
    append(nth_forward(shape, k));
    append(nth_backward(shape, k - warm_up));
  }
  for (int k = total - warm_up; k < total; ++k) append(nth_backward(shape, k));
  return order;
}

// Posts each receive before the compute action that precedes its user; sends follow their maker.
ActionList with_messages(const ActionList& order, const PipelineShape& shape, int stage) {
  ActionList list;
  const auto post_receive = [&](size_t i) {
    if (i >= order.size()) return;
    const Action& user = order[i];
    if (user.verb == Verb::forward && !shape.is_first(stage, user.chunk))
      list.push_back({Verb::receive_activation, user.chunk, user.micro_batch});
    if (user.verb == Verb::backward && !shape.is_last(stage, user.chunk))
      list.push_back({Verb::receive_gradient, user.chunk, user.micro_batch});
  };
  post_receive(0);
  for (size_t i = 0; i < order.size(); ++i) {
    const Action& compute = order[i];
    post_receive(i + 1);
    list.push_back(compute);
    if (compute.verb == Verb::forward && !shape.is_last(stage, compute.chunk))
      list.push_back({Verb::send_activation, compute.chunk, compute.micro_batch});
    if (compute.verb == Verb::backward && !shape.is_first(stage, compute.chunk))
      list.push_back({Verb::send_gradient, compute.chunk, compute.micro_batch});
  }
  return list;
}

ActionList training_list(const PipelineShape& shape, int stage, int warm_up) {
  ActionList list = with_messages(compute_order(shape, warm_up), shape, stage);
  list.push_back({Verb::sync_gradients, 0, 0});
  return list;
}

}  // namespace

std::string text_of(const Action& action) {
  constexpr const char* kNames[] = {"receive activation", "forward",  "send activation",
                                    "receive gradient",   "backward", "send gradient",
                                    "sync gradients"};
  if (action.verb == Verb::sync_gradients) return kNames[6];
  return fmt::format("{} of chunk {}, micro-batch {}", kNames[static_cast<size_t>(action.verb)],
                     action.chunk, action.micro_batch);
}

ActionList forward_only(const PipelineShape& shape, int stage) {
  check_shape(shape, stage);
  ActionList order = compute_order(shape, 0);
  std::erase_if(order, [](const Action& action) { return action.verb == Verb::backward; });
  return with_messages(order, shape, stage);
}

ActionList one_forward_one_backward(const PipelineShape& shape, int stage) {
  check_shape(shape, stage);
  require(shape.chunks == 1, ExitCode::internal, "plain 1F1B has one chunk a stage, not {}",
          shape.chunks);
  return training_list(shape, stage, shape.stages - 1 - stage);
}

ActionList interleaved(const PipelineShape& shape, int stage) {
  check_shape(shape, stage);
  const int warm_up = 2 * (shape.stages - 1 - stage) + (shape.chunks - 1) * shape.stages;
  return training_list(shape, stage, warm_up);
}

ActionList schedule_for(const PipelineShape& shape, int stage, Pass pass) {
  if (pass == Pass::evaluate) return forward_only(shape, stage);
  return shape.chunks == 1 ? one_forward_one_backward(shape, stage) : interleaved(shape, stage);
}

std::vector<ActionList> schedules_for(const PipelineShape& shape, Pass pass) {
  std::vector<ActionList> lists;
  lists.reserve(static_cast<size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage)
    lists.push_back(schedule_for(shape, stage, pass));
  return lists;
}

BufferCounts buffers_needed(std::span<const Action> list, const PipelineShape& shape, int stage) {
  BufferCounts most;
  int in = 0, gradients = 0, sent_activations = 0, sent_gradients = 0, gradient_uses = 0;
  for (const Action& action : list) {
    const bool first = shape.is_first(stage, action.chunk);
    const bool last = shape.is_last(stage, action.chunk);
    switch (action.verb) {
      case Verb::receive_activation:
        most.activations_in = std::max(most.activations_in, ++in);
        break;
      case Verb::forward:
        in -= first ? 0 : 1;
        break;
      case Verb::send_activation:
        ++sent_activations;
        break;
      case Verb::receive_gradient:
        ++gradients, ++gradient_uses;
        break;
      case Verb::backward:
        // The last virtual stage makes its gradient itself, the first passes none on.
        if (last && !first) ++gradients, ++gradient_uses;
        break;
      case Verb::send_gradient:
        ++sent_gradients;
        break;
      case Verb::sync_gradients:
        break;
    }
    most.gradients = std::max(most.gradients, gradients);
    if (action.verb == Verb::send_gradient) --gradients;
    if (action.verb == Verb::backward && first && !last) --gradients;
  }
  most.activations_out = std::min(2, sent_activations);
  if (sent_gradients > 0) most.gradients = std::min(most.gradients + 1, gradient_uses);
  most.stashes = stashes_needed(list);
  return most;
}

BufferCounts larger(const BufferCounts& a, const BufferCounts& b) {
  return {std::max(a.stashes, b.stashes), std::max(a.activations_in, b.activations_in),
          std::max(a.activations_out, b.activations_out), std::max(a.gradients, b.gradients)};
}

int stashes_needed(std::span<const Action> list) {
  const bool trains = std::any_of(
      list.begin(), list.end(), [](const Action& action) { return action.verb == Verb::backward; });
  int held = 0, most = 0;
  for (const Action& action : list) {
    if (action.verb == Verb::forward) most = std::max(most, ++held);
    if (action.verb == (trains ? Verb::backward : Verb::forward)) --held;
  }
  return most;
}

}  // namespace trireme
