#include "trireme/config/layout.hpp"

#include <filesystem>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

void resolve_model(Settings& settings) {
  ModelSettings& m = settings.model;
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.head_size == 0 && m.heads > 0 && m.hidden % m.heads == 0) m.head_size = m.hidden / m.heads;
  if (m.ffn == 0 && m.family == Family::gpt2) m.ffn = 4 * m.hidden;
  if (m.positions == 0 && m.family == Family::gpt2) m.positions = settings.batch.sequence;
}

// The run's length in steps of the final batch; a run with a ramp consumes less than steps x
// global.
int64_t default_decay(const Settings& settings) {
  const BatchRamp ramp = batch_ramp(settings);
  if (!ramp.active()) return settings.run.steps;
  const int64_t consumed = consumed_before(ramp, settings.run.steps);
  return consumed / ramp.final + (consumed % ramp.final > 0 ? 1 : 0);
}

DType compute_type(PrecisionSettings::Compute compute) {
  return compute == PrecisionSettings::Compute::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace

std::vector<std::string> resolve(Settings& settings, const std::string& deck_name) {
  std::vector<std::string> notes;
  resolve_model(settings);
  if (settings.schedule.decay == 0) settings.schedule.decay = default_decay(settings);
  if (settings.run.directory.empty()) {
    const std::string stem = std::filesystem::path(deck_name).stem().string();
    settings.run.directory = "runs/" + (stem.empty() ? std::string("run") : stem);
  }
  if (settings.grid.sequence_parallel && settings.grid.tp == 1) {
    settings.grid.sequence_parallel = false;
    notes.push_back("grid.sequence_parallel is switched off: it splits over tp, and grid.tp is 1");
  }
  if (settings.grid.tp_overlap == GridSettings::Overlap::on && !settings.grid.sequence_parallel) {
    settings.grid.tp_overlap = GridSettings::Overlap::off;
    notes.push_back(
        "grid.tp_overlap is switched off: it sends the shards of grid.sequence_parallel, which is "
        "off");
  }
  return notes;
}

ModelShape model_shape(const Settings& settings) {
  const ModelSettings& m = settings.model;
  const bool gpt2 = m.family == Family::gpt2;
  ModelShape shape;
  shape.family = m.family;
  shape.layers = m.layers;
  shape.hidden = m.hidden;
  shape.heads = m.heads;
  shape.kv_heads = m.kv_heads;
  shape.head_size = m.head_size;
  shape.ffn = m.ffn;
  shape.vocab = m.vocab;
  shape.max_sequence = gpt2 ? m.positions : settings.batch.sequence;
  shape.tied = m.tied;
  shape.bias = m.bias;
  shape.qkv_bias = m.qkv_bias;
  shape.output_bias = m.output_bias;
  shape.mlp_bias = m.mlp_bias;
  shape.qk_norm = m.qk_norm && !gpt2;
  shape.gated = !gpt2;
  shape.learned_positions = gpt2;
  shape.layer_norm = gpt2;
  shape.norm_epsilon = static_cast<float>(m.norm_epsilon);
  shape.rope_base = m.rope_base;
  shape.rope_scaling = {m.rope_factor, m.rope_low_frequency, m.rope_high_frequency,
                        m.rope_original_length};
  shape.dropout = static_cast<float>(m.dropout);
  shape.init_std = m.init_std;
  shape.compute = compute_type(settings.precision.compute);
  return shape;
}

GridShape grid_shape(const Settings& settings, int ranks) {
  std::string lines;
  for (const BrokenRule& rule : broken_rules(settings, ranks)) lines += "\n  " + rule.text;
  require(lines.empty(), ExitCode::bad_config, "this deck cannot run on {} ranks:{}", ranks, lines);
  const GridSettings& g = settings.grid;
  GridShape shape{.tp = static_cast<int>(g.tp),
                  .cp = static_cast<int>(g.cp),
                  .dp = 1,
                  .pp = static_cast<int>(g.pp)};
  shape.dp = ranks / shape.ranks();
  return shape;
}

BatchRamp batch_ramp(const Settings& settings) {
  const BatchSettings& b = settings.batch;
  return {.final = b.global,
          .start = b.ramp_start,
          .increment = b.ramp_increment,
          .samples = b.ramp_samples};
}

DataOptions data_options(const Settings& settings) {
  const DataSettings& d = settings.data;
  DataOptions options;
  options.kind = d.kind;
  options.path = d.path;
  options.train_path = d.train_path;
  options.validation_path = d.validation_path;
  if (d.kind == DataKind::indexed) {
    options.validation_sets = d.validation_sets;
    options.loss_mask = d.loss_mask;
  }
  options.split = d.split;
  options.order = d.order;
  options.sequence = settings.batch.sequence;
  options.seed = static_cast<uint64_t>(settings.run.seed);
  options.vocab = settings.model.vocab;
  return options;
}

int64_t validation_request(const Settings& settings) {
  return settings.run.evaluate_batches == 0 ? kOneEpoch
                                            : settings.run.evaluate_batches * settings.batch.global;
}

}  // namespace trireme
