#include "trireme/train/rank_plan.hpp"

#include <algorithm>

#include "trireme/config/batch_ramp.hpp"
#include "trireme/config/layout.hpp"

namespace trireme {
namespace {

// The largest need over all global batch sizes that occur, and evaluation.
BufferCounts all_buffers(const Settings& settings, const RankPlan& plan) {
  const BatchRamp ramp = batch_ramp(settings);
  const int64_t unit = settings.batch.micro * plan.grid.dp;
  PipelineShape shape = plan.pipeline;
  auto needed = [&](Pass pass) {
    return buffers_needed(schedule_for(shape, plan.here.pp, pass), shape, plan.here.pp);
  };
  BufferCounts counts = larger(needed(Pass::train), needed(Pass::evaluate));
  if (!ramp.active()) return counts;
  for (int64_t size = ramp.start; size < ramp.final; size += ramp.increment) {
    shape.micro_batches = static_cast<int>(size / unit);
    counts = larger(counts, needed(Pass::train));
  }
  return counts;
}

bool overlaps(GridSettings::Overlap tp_overlap) {
  if (tp_overlap == GridSettings::Overlap::automatic) return !device_memory_is_host();
  return tp_overlap == GridSettings::Overlap::on;
}

}  // namespace

RankPlan rank_plan(const Settings& settings, const GridShape& grid, const GridCoord& here) {
  RankPlan plan;
  plan.model = model_shape(settings);
  plan.grid = grid;
  plan.here = here;
  plan.chunk.batch = {settings.batch.micro, settings.batch.sequence};
  plan.chunk.recompute = settings.model.recompute;
  plan.chunk.recompute_layers = settings.model.recompute_layers;
  plan.chunk.sequence_parallel = settings.grid.sequence_parallel && grid.tp > 1;
  plan.chunk.tp_overlap = plan.chunk.sequence_parallel && overlaps(settings.grid.tp_overlap);
  plan.chunk.deterministic = settings.precision.deterministic;
  plan.chunk.grid = grid;
  plan.chunk.here = here;
  const auto chunks = static_cast<int>(settings.grid.virtual_stages);
  plan.pipeline = {grid.pp, chunks,
                   static_cast<int>(settings.batch.global / (settings.batch.micro * grid.dp))};
  plan.layers = layer_ranges(plan.model.layers, grid.pp, chunks, here.pp);
  plan.bucket_elements = settings.optimizer.bucket;
  plan.zero = static_cast<int>(settings.optimizer.zero);
  plan.buffers = all_buffers(settings, plan);
  plan.resets = {static_cast<int32_t>(settings.data.eod), settings.data.reset_positions,
                 settings.data.reset_attention};
  return plan;
}

RankPlan evaluation_plan(const Settings& settings, const GridShape& grid, const GridCoord& here) {
  RankPlan plan = rank_plan(settings, grid, here);
  plan.trains = false;
  plan.chunk.recompute = Recompute::full;
  plan.chunk.recompute_layers = 0;
  plan.buffers =
      buffers_needed(schedule_for(plan.pipeline, here.pp, Pass::evaluate), plan.pipeline, here.pp);
  return plan;
}

BatchMemory::BatchMemory(const RankPlan& plan, Arena& arena) {
  const int64_t n = plan.chunk.batch.tokens(), m = plan.pipeline.micro_batches;
  if (plan.first_stage()) tokens = arena.take({m, n}, DType::i32, "batch");
  if (plan.last_stage()) targets = arena.take({m, n}, DType::i32, "batch");
  if (plan.last_stage()) mask = arena.take({m, n}, DType::f32, "batch");
  positions = arena.take({plan.resets.positions ? m : 1, n}, DType::i32, "batch");
  if (plan.resets.attention) starts = arena.take({m, n}, DType::i32, "batch");
}

namespace {

std::vector<Chunk> make_chunks(const RankPlan& plan, const ParameterStore& store) {
  std::vector<Chunk> chunks;
  chunks.reserve(static_cast<size_t>(plan.pipeline.chunks));
  for (int c = 0; c < plan.pipeline.chunks; ++c)
    chunks.emplace_back(plan.model, plan.chunk, plan.layers[static_cast<size_t>(c)],
                        plan.pipeline.is_first(plan.here.pp, c),
                        plan.pipeline.is_last(plan.here.pp, c), store);
  return chunks;
}

}  // namespace

RankMemory::RankMemory(const RankPlan& plan, Arena& arena)
    : none_(Arena::dry()),
      table(plan.model, {plan.grid, plan.here, plan.pipeline.chunks, plan.chunk.sequence_parallel,
                         plan.bucket_elements}),
      layout(table, plan.here.dp * plan.grid.cp + plan.here.cp, plan.grid.dp * plan.grid.cp,
             plan.zero),
      store(table, plan.model.compute, arena,
            plan.trains ? ParameterUse::training : ParameterUse::inference),
      optimizer(layout, plan.trains ? arena : none_),
      scratch(plan.model, plan.chunk, plan.first_stage(), plan.last_stage(), arena),
      chunks(make_chunks(plan, store)),
      pipeline(chunks, plan.buffers, plan.model.compute, scratch, arena),
      batch(plan, arena),
      state(reinterpret_cast<StepState*>(
          arena.take({static_cast<int64_t>(sizeof(StepState) / 4)}, DType::f32, "step state")
              .data)) {}

std::vector<ArenaLine> planned_memory(const RankPlan& plan) {
  Arena arena = Arena::dry();
  const RankMemory memory(plan, arena);
  return arena.lines();
}

bool beside_training(const CheckpointSettings& settings) {
  return settings.asynchronous && settings.every > 0;
}

SnapshotPlan snapshot_plan(const CheckpointSettings& settings, const ShardLayout& layout,
                           DType compute) {
  if (!beside_training(settings)) return {};
  const int64_t needed = layout.saved_bytes(compute);
  const int64_t limit = settings.memory == 0 ? needed : settings.memory << 20;
  return {std::min(needed, limit), needed};
}

SnapshotPlan snapshot_plan(const CheckpointSettings& settings, const RankPlan& plan) {
  const ParameterTable table(plan.model, {plan.grid, plan.here, plan.pipeline.chunks,
                                          plan.chunk.sequence_parallel, plan.bucket_elements});
  const ShardLayout layout(table, plan.here.dp * plan.grid.cp + plan.here.cp,
                           plan.grid.dp * plan.grid.cp, plan.zero);
  return snapshot_plan(settings, layout, plan.model.compute);
}

}  // namespace trireme
