// Carries out an action list over the chunks of this rank. One executor for all schedules.
//
// Received activations land in message buffers and are copied to the stash slot when their forward
// begins, so that a receive can be posted early without holding a whole stash; gradients are worked
// on in the buffer they arrive in. A buffer is used again only behind an event of its last user.
// Each edge and direction has its own group and stream (`PipelineEdge`), so messages of different
// edges never wait for each other.
#pragma once

#include <span>
#include <vector>

#include "trireme/comm/process_grid.hpp"
#include "trireme/device/device.hpp"
#include "trireme/model/chunk.hpp"
#include "trireme/parallel/schedule.hpp"
#include "trireme/parallel/step_observer.hpp"

namespace trireme {

// The micro-batches of this dp rank in one step, by index; views of device memory that stay valid
// until the compute stream has passed the run.
struct StepBatch {
  std::vector<MicroBatch> micro_batches;
};

// All memory of a pipeline: stash slots, and message buffers of one activation each. The chunks of
// a rank share the slots (each holds the largest chunk's stash), since their peaks come at other
// times. `counts` must cover every list that will run (`larger`). Takes the same from a dry arena.
struct PipelineMemory {
  PipelineMemory(std::span<Chunk> chunks, const BufferCounts& counts, DType compute,
                 ChunkScratch& scratch, Arena& arena);
  BufferCounts counts;
  std::vector<TensorView> activations_in, activations_out, gradients;
};

class Pipeline {
 public:
  // One chunk for each virtual stage of this rank, with their stashes taken. The arguments must
  // outlive this object. Local.
  Pipeline(std::span<Chunk> chunks, const PipelineMemory& memory, const ProcessGrid& grid,
           LayerContext& context);

  // Runs `list`, which must be this stage's in a set of lists without fault; all stages run theirs.
  // Mode::train adds to the gradients; losses and counted tokens add to the step state. `observer`
  // may be null. Compute issued afterwards comes behind every message of the run (on the CPU: all
  // are done).
  // Collective over the pipeline. Throws Error(internal) where memory or batch do not fit the list.
  void run(std::span<const Action> list, const PipelineShape& shape, const StepBatch& batch,
           Mode mode, StepObserver* observer);
  // What the last run did, in order.
  const ActionList& executed() const { return executed_; }
  // What compute spends waiting for messages, where it is switched on: their time on the way and
  // the idle time of the schedule.
  StreamTimer& exposed() { return exposed_; }

 private:
  // Buffers are taken in the order in which they were given back, each with the event of its last
  // use.
  struct Buffers {
    explicit Buffers(const std::vector<TensorView>& memory);
    int take();
    void give_back(int index) { free.push_back(index); }
    std::vector<TensorView> views;
    std::vector<Event> events;
    std::vector<int> free;
  };
  // One micro-batch in one chunk.
  struct Flight {
    int slot = -1, in = -1, out = -1, gradient = -1;
    TensorView d_input;
  };
  class Hooks;
  struct Run;

  void check(std::span<const Action> list, const PipelineShape& shape,
             const StepBatch& batch) const;
  void carry_out(const Action& action, Run& run);
  void forward(const Action& action, Run& run);
  void backward(const Action& action, Run& run);
  void receive(const Communicator& group, Stream& stream, Buffers& buffers, int index);
  void send(const Communicator& group, Stream& stream, Buffers& buffers, int index,
            TensorView view);
  void finish_messages();
  void progress() const;

  std::span<Chunk> chunks_;
  BufferCounts counts_;
  const ProcessGrid& grid_;
  LayerContext& context_;
  Buffers in_, out_, gradients_;
  std::vector<int> free_slots_;
  ActionList executed_;
  StreamTimer exposed_;
};

}  // namespace trireme
