// Pipeline schedules as data: the list of actions of each stage, a fault finder that proves a set
// of lists complete and free of deadlock, the buffers a list needs, and a drawing.
//
// Everything here is pure: no MPI, no device. Chunk c of stage s is virtual stage c * stages + s;
// activations go from virtual stage k to k + 1 (from the last stage to the first with the next
// chunk), gradients back.
//
// What the actions mean to whoever carries them out, and to the fault finder:
// - A receive is *posted*: it takes a buffer and returns; data may arrive at any later time. Lists
// post
//   the receive of a compute action before the compute action that precedes it.
// - A forward or backward waits for its posted receive.
// - A send returns at once, but is complete only when the receiver has posted (no buffering by the
//   transport is assumed). Its buffer is used again only then.
// - Messages of one edge and direction match in order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme {

enum class Verb : uint8_t {
  receive_activation,
  forward,
  send_activation,
  receive_gradient,
  backward,
  send_gradient,
  sync_gradients,  // all gradients of the rank are complete; once, last
};

struct Action {
  Verb verb = Verb::forward;
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};
std::string text_of(const Action& action);  // "forward of chunk 1, micro-batch 3"

struct PipelineShape {
  int stages = 1;         // pp
  int chunks = 1;         // virtual stages of each rank
  int micro_batches = 1;  // of one dp rank in one step
  int virtual_stage(int stage, int chunk) const { return chunk * stages + stage; }
  bool is_first(int stage, int chunk) const { return virtual_stage(stage, chunk) == 0; }
  bool is_last(int stage, int chunk) const {
    return virtual_stage(stage, chunk) == stages * chunks - 1;
  }
};

using ActionList = std::vector<Action>;

// Forward passes only (evaluation). Any number of chunks.
ActionList forward_only(const PipelineShape& shape, int stage);
// One forward, one backward (Narayanan et al., "PipeDream", 2019; with flush). One chunk.
ActionList one_forward_one_backward(const PipelineShape& shape, int stage);
// Interleaved 1F1B (Narayanan et al., "Efficient large-scale language model training on GPU
// clusters", 2021). Any number of micro-batches: where the stages do not divide it, the list is
// that of the next multiple without the micro-batches that do not exist.
ActionList interleaved(const PipelineShape& shape, int stage);

enum class Pass : uint8_t { train, evaluate };
// The list of one stage: forward_only, or 1F1B, interleaved where there are several chunks. Throws
// Error(bad_config) for sizes below 1, or several chunks on one stage.
ActionList schedule_for(const PipelineShape& shape, int stage, Pass pass);
std::vector<ActionList> schedules_for(const PipelineShape& shape, Pass pass);

// Buffers that a list needs, so that memory is planned exactly.
struct BufferCounts {
  int stashes = 0;          // most passes between forward and backward, all chunks together
  int activations_in = 0;   // posted receives whose forward has not begun
  int activations_out = 0;  // outputs: one being written, one being sent
  int gradients = 0;        // posted or being worked on, and one being sent
  bool operator==(const BufferCounts&) const = default;
};
BufferCounts buffers_needed(std::span<const Action> list, const PipelineShape& shape, int stage);
// Enough for either.
BufferCounts larger(const BufferCounts& a, const BufferCounts& b);
int stashes_needed(std::span<const Action> list);

// Nothing when the lists of all stages are right; else what is wrong, with stage and action.
// Checked: each forward and backward once for each chunk and micro-batch; each with its receive and
// send; the order inside a stage; matching order on each edge and direction; a run to the end with
// the buffers of `buffers_needed`; gradients synchronised once, last. Lists with any backward work
// must be complete training lists.
std::optional<std::string> find_fault(std::span<const ActionList> lists,
                                      const PipelineShape& shape);

// Time lost / ideal compute time of the slowest stage, at forward 1 and backward 2 time units and
// free communication. (stages - 1) / (chunks * micro_batches) for 1F1B and interleaved.
// Throws Error(internal) when the lists have a fault.
double bubble(std::span<const ActionList> lists, const PipelineShape& shape);

// One line a stage, time to the right, and a legend with the bubble. Forward cells hold the
// micro-batch, behind a letter for the chunk where there are several; backward cells are in
// brackets. Lines longer than `columns` are cut and end in '>'. Throws as `bubble`.
std::string draw(std::span<const ActionList> lists, const PipelineShape& shape, int columns = 160);

}  // namespace trireme
