#include "trireme/parallel/pipeline.hpp"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.hpp"

namespace trireme {

namespace {

// One slot of every chunk in the same memory.
void take_shared_slot(std::span<Chunk> chunks, ChunkScratch& scratch, Arena& arena) {
  if (chunks.size() == 1) return chunks.front().take_stashes(1, arena, scratch);
  const size_t start = arena.mark();
  size_t largest = 0;
  for (Chunk& chunk : chunks) {
    chunk.take_stashes(1, arena, scratch);
    largest = std::max(largest, arena.mark() - start);
    arena.rewind(start);
  }
  arena.take({static_cast<int64_t>(largest / size_of(DType::f32))}, DType::f32, "activations");
}

}  // namespace

PipelineMemory::PipelineMemory(std::span<Chunk> chunks, const BufferCounts& needed, DType compute,
                               ChunkScratch& scratch, Arena& arena)
    : counts(needed) {
  for (int slot = 0; slot < counts.stashes; ++slot) take_shared_slot(chunks, scratch, arena);
  const Shape shape = chunks.front().activation_shape();
  const auto take = [&](int count, std::vector<TensorView>& views) {
    for (int i = 0; i < count; ++i)
      views.push_back(arena.take(shape, compute, "pipeline messages"));
  };
  take(counts.activations_in, activations_in);
  take(counts.activations_out, activations_out);
  take(counts.gradients, gradients);
}

Pipeline::Buffers::Buffers(const std::vector<TensorView>& memory)
    : views(memory), events(memory.size()), free(memory.size()) {
  std::iota(free.begin(), free.end(), 0);
}

int Pipeline::Buffers::take() {
  require(!free.empty(), ExitCode::internal, "all {} pipeline buffers are in use", views.size());
  const int index = free.front();
  free.erase(free.begin());
  return index;
}

// Passes the chunk's events on; gradients only of the last micro-batch. Each event is also a moment
// to let messages move.
class Pipeline::Hooks final : public ChunkObserver {
 public:
  Hooks(const Pipeline& pipeline, StepObserver* observer)
      : pipeline_(pipeline), observer_(observer) {}
  void set_last(bool last) { last_ = last; }
  void before_use(int64_t layer) override {
    if (observer_ != nullptr) observer_->before_use(layer);
    pipeline_.progress();
  }
  void gradient_ready(int64_t layer) override {
    if (observer_ != nullptr && last_) observer_->gradient_ready(layer);
    pipeline_.progress();
  }

 private:
  const Pipeline& pipeline_;
  StepObserver* observer_;
  bool last_ = false;
};

struct Pipeline::Run {
  PipelineShape shape;
  int stage = 0;
  const StepBatch& batch;
  Mode mode;
  StepObserver* observer;
  Hooks hooks;
  std::vector<Flight> flights;      // by chunk and micro-batch
  std::vector<int> backwards_left;  // by chunk

  Flight& flight(const Action& action) {
    return flights[static_cast<size_t>(action.chunk) * shape.micro_batches + action.micro_batch];
  }
  const MicroBatch& micro_batch(const Action& action) const {
    return batch.micro_batches[static_cast<size_t>(action.micro_batch)];
  }
  bool first(const Action& action) const { return shape.is_first(stage, action.chunk); }
  bool last(const Action& action) const { return shape.is_last(stage, action.chunk); }
};

Pipeline::Pipeline(std::span<Chunk> chunks, const PipelineMemory& memory, const ProcessGrid& grid,
                   LayerContext& context)
    : chunks_(chunks),
      counts_(memory.counts),
      grid_(grid),
      context_(context),
      in_(memory.activations_in),
      out_(memory.activations_out),
      gradients_(memory.gradients),
      free_slots_(static_cast<size_t>(counts_.stashes)) {
  std::iota(free_slots_.begin(), free_slots_.end(), 0);
}

void Pipeline::check(std::span<const Action> list, const PipelineShape& shape,
                     const StepBatch& batch) const {
  require(shape.stages == grid_.shape().pp && shape.chunks == static_cast<int>(chunks_.size()),
          ExitCode::internal, "a schedule of {} stages and {} chunks on a rank of {} and {}",
          shape.stages, shape.chunks, grid_.shape().pp, chunks_.size());
  require(batch.micro_batches.size() == static_cast<size_t>(shape.micro_batches),
          ExitCode::internal, "{} micro-batches given for a schedule of {}",
          batch.micro_batches.size(), shape.micro_batches);
  const BufferCounts needed = buffers_needed(list, shape, grid_.here().pp);
  require(larger(needed, counts_) == counts_, ExitCode::internal,
          "the schedule needs more pipeline memory than was planned");
}

void Pipeline::run(std::span<const Action> list, const PipelineShape& shape, const StepBatch& batch,
                   Mode mode, StepObserver* observer) {
  check(list, shape, batch);
  const size_t chunks = static_cast<size_t>(shape.chunks);
  Run run{shape, grid_.here().pp, batch, mode, observer, Hooks(*this, observer), {}, {}};
  run.flights.resize(chunks * static_cast<size_t>(shape.micro_batches));
  run.backwards_left.resize(chunks, shape.micro_batches);
  executed_.clear();
  for (const Action& action : list) {
    carry_out(action, run);
    executed_.push_back(action);
  }
  finish_messages();
}

void Pipeline::carry_out(const Action& action, Run& run) {
  Flight& flight = run.flight(action);
  switch (action.verb) {
    case Verb::receive_activation: {
      const PipelineEdge& edge = grid_.to_previous();
      flight.in = in_.take();
      return receive(edge.activations, *edge.activation_stream, in_, flight.in);
    }
    case Verb::receive_gradient: {
      const PipelineEdge& edge = grid_.to_next();
      flight.gradient = gradients_.take();
      return receive(edge.gradients, *edge.gradient_stream, gradients_, flight.gradient);
    }
    case Verb::send_activation: {
      const PipelineEdge& edge = grid_.to_next();
      return send(edge.activations, *edge.activation_stream, out_, flight.out,
                  out_.views[static_cast<size_t>(flight.out)]);
    }
    case Verb::send_gradient: {
      const PipelineEdge& edge = grid_.to_previous();
      return send(edge.gradients, *edge.gradient_stream, gradients_, flight.gradient,
                  flight.d_input);
    }
    case Verb::forward:
      return forward(action, run);
    case Verb::backward:
      return backward(action, run);
    case Verb::sync_gradients:
      if (run.observer != nullptr) run.observer->all_gradients_ready();
      return;
  }
}

void Pipeline::forward(const Action& action, Run& run) {
  const size_t c = static_cast<size_t>(action.chunk);
  Stream& compute = context_.device.compute();
  Flight& flight = run.flight(action);
  require(!free_slots_.empty(), ExitCode::internal, "all {} stashes are in use", counts_.stashes);
  flight.slot = free_slots_.back();
  free_slots_.pop_back();
  if (!run.first(action)) {
    Event& event = in_.events[static_cast<size_t>(flight.in)];
    exposed_.wait(compute, event);
    copy(compute, in_.views[static_cast<size_t>(flight.in)], chunks_[c].input(flight.slot));
    compute.record(event);
    in_.give_back(flight.in);
  }
  TensorView output;
  if (!run.last(action)) {
    flight.out = out_.take();
    exposed_.wait(compute, out_.events[static_cast<size_t>(flight.out)]);
    output = out_.views[static_cast<size_t>(flight.out)];
  }
  chunks_[c].forward(context_, run.mode, flight.slot, run.micro_batch(action), output, &run.hooks);
  if (flight.out >= 0) compute.record(out_.events[static_cast<size_t>(flight.out)]);
  if (run.mode == Mode::evaluate) free_slots_.push_back(flight.slot);
}

void Pipeline::backward(const Action& action, Run& run) {
  const size_t c = static_cast<size_t>(action.chunk);
  Stream& compute = context_.device.compute();
  Flight& flight = run.flight(action);
  TensorView d_output;
  if (!run.last(action)) {
    exposed_.wait(compute, gradients_.events[static_cast<size_t>(flight.gradient)]);
    d_output = gradients_.views[static_cast<size_t>(flight.gradient)];
  }
  run.hooks.set_last(--run.backwards_left[c] == 0);
  flight.d_input =
      chunks_[c].backward(context_, flight.slot, run.micro_batch(action), d_output, &run.hooks);
  run.hooks.set_last(false);
  // The last virtual stage leaves its gradient in the stash slot, which the next forward may take.
  if (run.last(action) && !run.first(action)) {
    flight.gradient = gradients_.take();
    exposed_.wait(compute, gradients_.events[static_cast<size_t>(flight.gradient)]);
    const TensorView message = gradients_.views[static_cast<size_t>(flight.gradient)];
    copy(compute, flight.d_input, message);
    flight.d_input = message;
  }
  if (flight.gradient >= 0) {
    compute.record(gradients_.events[static_cast<size_t>(flight.gradient)]);
    if (run.first(action)) gradients_.give_back(flight.gradient);
  }
  free_slots_.push_back(flight.slot);
}

// Both behind the event of the buffer's last user; the event then marks the message.
void Pipeline::receive(const Communicator& group, Stream& stream, Buffers& buffers, int index) {
  const size_t i = static_cast<size_t>(index);
  stream.wait(buffers.events[i]);
  const Transfer transfer{Transfer::Direction::receive, 1 - group.rank(), buffers.views[i]};
  group.exchange(stream, {&transfer, 1});
  stream.record(buffers.events[i]);
}

void Pipeline::send(const Communicator& group, Stream& stream, Buffers& buffers, int index,
                    TensorView view) {
  const size_t i = static_cast<size_t>(index);
  stream.wait(buffers.events[i]);
  const Transfer transfer{Transfer::Direction::send, 1 - group.rank(), view};
  group.exchange(stream, {&transfer, 1});
  stream.record(buffers.events[i]);
  buffers.give_back(index);
}

// Received messages are done with their forward or backward; what may be left are sends.
void Pipeline::finish_messages() {
  for (const Buffers* buffers : {&out_, &gradients_})
    for (const Event& event : buffers->events) exposed_.wait(context_.device.compute(), event);
}

void Pipeline::progress() const {
  if (grid_.shape().pp == 1) return;
  for (const PipelineEdge* edge : {&grid_.to_next(), &grid_.to_previous()}) {
    edge->activations.progress();
    edge->gradients.progress();
  }
}

}  // namespace trireme
