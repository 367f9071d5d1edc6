// What one rank builds, and the memory of it: a pure function of settings, grid and coordinate.
//
// `trireme plan` builds it on a dry arena for any rank of any grid; a run builds it twice, dry to
// size its arena and then for real, and asserts that both agree to the byte.
#pragma once

#include <memory>
#include <vector>

#include "trireme/config/settings.hpp"
#include "trireme/model/chunk.hpp"
#include "trireme/parallel/distributed_adamw.hpp"
#include "trireme/parallel/pipeline.hpp"
#include "trireme/parallel/schedule.hpp"
#include "trireme/parallel/shard_layout.hpp"

namespace trireme {

// What begins anew behind the end of a document.
struct DocumentResets {
  int32_t end_of_document = -1;
  bool positions = false, attention = false;
  bool any() const { return positions || attention; }
};

struct RankPlan {
  ModelShape model;
  GridShape grid;
  GridCoord here;
  ChunkOptions chunk;
  PipelineShape pipeline;          // with the micro-batches of the final global batch
  std::vector<LayerRange> layers;  // by chunk
  BufferCounts buffers;            // enough for every batch size of the run and for evaluation
  int64_t bucket_elements = 0;
  int zero = 1;
  bool trains = true;  // false: no memory for gradients and optimizer
  DocumentResets resets;
  bool first_stage() const { return here.pp == 0; }
  bool last_stage() const { return here.pp == grid.pp - 1; }
};
// Throws Error(bad_config) for layouts that the model does not fit.
RankPlan rank_plan(const Settings& settings, const GridShape& grid, const GridCoord& here);
// The same rank where it only evaluates: one stash, whose layers share their memory.
RankPlan evaluation_plan(const Settings& settings, const GridShape& grid, const GridCoord& here);

// Device memory of the tokens of a step: [micro-batches, tokens] but for what says otherwise.
struct BatchMemory {
  BatchMemory(const RankPlan& plan, Arena& arena);
  TensorView tokens;     // i32; first stage
  TensorView targets;    // i32; last stage
  TensorView mask;       // f32; last stage
  TensorView positions;  // [tokens] i32; [micro-batches, tokens] where documents reset them
  TensorView starts;     // i32; where documents reset attention
};

// Everything of a rank that takes memory and needs no communication to be built. Not movable: the
// parts refer to each other.
class RankMemory {
 public:
  RankMemory(const RankPlan& plan, Arena& arena);
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

 private:
  Arena none_;  // dry: what an evaluation does without

 public:
  ParameterTable table;
  ShardLayout layout;
  ParameterStore store;
  OptimizerMemory optimizer;
  ChunkScratch scratch;
  std::vector<Chunk> chunks;
  PipelineMemory pipeline;
  BatchMemory batch;
  StepState* state;  // device memory; null on a dry arena
};

// Bytes by purpose of the rank at `plan.here`.
std::vector<ArenaLine> planned_memory(const RankPlan& plan);

// Whether saves are written while training goes on: the same on every rank, also on those with
// nothing to save, for the two ways talk to the other ranks differently.
bool beside_training(const CheckpointSettings& settings);

// Page-locked host memory of the rank for the snapshot of asynchronous saves, and what it would
// need to hold all of its state (the same without a limit). 0 where saves are not asynchronous.
struct SnapshotPlan {
  int64_t bytes = 0, needed = 0;
};
SnapshotPlan snapshot_plan(const CheckpointSettings& settings, const ShardLayout& layout,
                           DType compute);
SnapshotPlan snapshot_plan(const CheckpointSettings& settings, const RankPlan& plan);

}  // namespace trireme
