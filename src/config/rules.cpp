// The rules that tie settings together. Each names the sizes and the remedy; all are checked, so
// that one reading of a deck shows everything that is wrong with it.
#include "config/rules.hpp"

#include <string>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/data/blend.hpp"
#include "trireme/data/split.hpp"

namespace trireme {
namespace {

void model_rules(const Settings& s, Rules& rules) {
  const ModelSettings& m = s.model;
  rules.check(
      m.head_size > 0 || divides(m.heads, m.hidden), {"model.hidden", "model.heads"},
      "model.hidden {} is not a multiple of model.heads {}: change one, or give model.head_size",
      m.hidden, m.heads);
  rules.check(
      divides(m.kv_heads, m.heads), {"model.kv_heads", "model.heads"},
      "model.kv_heads {} does not divide model.heads {}: every KV head serves as many heads",
      m.kv_heads, m.heads);
  rules.check(m.family != Family::llama || m.head_size % 2 == 0,
              {"model.head_size", "model.hidden", "model.heads", "model.family"},
              "model.head_size {} is odd; rotary positions turn pairs of elements", m.head_size);
  rules.check(m.family != Family::llama || m.ffn > 0, {"model.ffn", "model.family"},
              "model.ffn is missing: llama has no usual ratio to model.hidden (Llama 3 8B: 14336 "
              "for 4096)");
  rules.check(
      m.family != Family::gpt2 || m.positions >= s.batch.sequence,
      {"model.positions", "batch.sequence"},
      "model.positions {} is shorter than batch.sequence {}: sequences would run off the table",
      m.positions, s.batch.sequence);
  rules.check(m.family == Family::gpt2 || m.positions == 0, {"model.positions", "model.family"},
              "model.positions {} belongs to the position table of gpt2: leave it out",
              m.positions);
  rules.check(m.rope_factor == 0 || m.rope_factor >= 1, {"model.rope_factor"},
              "model.rope_factor {} would shorten the context: 0 (no scaling), 1 or more",
              m.rope_factor);
  rules.check(m.rope_factor == 0 || m.rope_low_frequency < m.rope_high_frequency,
              {"model.rope_low_frequency", "model.rope_high_frequency"},
              "model.rope_low_frequency {} must be below model.rope_high_frequency {}",
              m.rope_low_frequency, m.rope_high_frequency);
  rules.check(m.recompute == Recompute::full || m.recompute_layers == 0,
              {"model.recompute_layers", "model.recompute"},
              "model.recompute_layers {} needs model.recompute = full", m.recompute_layers);
}

void batch_rules(const Settings& s, Rules& rules) {
  const BatchSettings& b = s.batch;
  int64_t tokens = 0;
  const bool counts = !__builtin_mul_overflow(s.run.steps, b.global, &tokens) &&
                      !__builtin_mul_overflow(tokens, b.sequence, &tokens) && tokens < (1ll << 62);
  rules.check(counts, {"run.steps", "batch.global", "batch.sequence"},
              "run.steps {} x batch.global {} x batch.sequence {} tokens do not fit in 64 bits",
              s.run.steps, b.global, b.sequence);
  if (b.ramp_start == 0) {
    rules.check(b.ramp_increment == 0 && b.ramp_samples == 0,
                {"batch.ramp_increment", "batch.ramp_samples", "batch.ramp_start"},
                "batch.ramp_increment {} and batch.ramp_samples {} need batch.ramp_start above 0",
                b.ramp_increment, b.ramp_samples);
    return;
  }
  rules.check(b.ramp_start <= b.global, {"batch.ramp_start", "batch.global"},
              "batch.ramp_start {} is above batch.global {}: the batch only grows", b.ramp_start,
              b.global);
  rules.check(
      b.ramp_increment > 0 && divides(b.ramp_increment, b.global - b.ramp_start),
      {"batch.ramp_increment", "batch.ramp_start", "batch.global"},
      "batch.ramp_increment {} does not lead from batch.ramp_start {} to batch.global {}: it must "
      "divide the difference {}",
      b.ramp_increment, b.ramp_start, b.global, b.global - b.ramp_start);
  rules.check(b.ramp_samples > 0, {"batch.ramp_samples", "batch.ramp_start"},
              "batch.ramp_samples is missing: sequences over which the batch grows from {} to {}",
              b.ramp_start, b.global);
}

// A length in samples that the rate is evaluated at must fit; then the edges must make sense.
void schedule_rules(const Settings& s, Rules& rules) {
  using Kind = ScheduleSettings::Kind;
  const ScheduleSettings& c = s.schedule;
  const double rate = s.optimizer.learning_rate;
  for (const auto& [name, steps] : {std::pair{"schedule.warmup", c.warmup},
                                    {"schedule.decay", c.decay},
                                    {"schedule.wsd_decay", c.wsd_decay}})
    rules.check(static_cast<double>(steps) * static_cast<double>(s.batch.global) < 9e18,
                {name, "batch.global"}, "{} {} x batch.global {} sequences do not fit in 64 bits",
                name, steps, s.batch.global);
  rules.check(c.minimum <= rate, {"schedule.minimum", "optimizer.learning_rate"},
              "schedule.minimum {} is above optimizer.learning_rate {}", c.minimum, rate);
  rules.check(c.initial <= rate, {"schedule.initial", "optimizer.learning_rate"},
              "schedule.initial {} is above optimizer.learning_rate {}: a warm-up rises", c.initial,
              rate);
  if (s.run.steps == 0 || c.kind == Kind::constant) return;
  const bool meets = c.kind == Kind::inverse_square_root && c.warmup == c.decay;
  rules.check(c.warmup < c.decay || meets, {"schedule.warmup", "schedule.decay", "run.steps"},
              "schedule.warmup {} is not below schedule.decay {} (default: the length of the run): "
              "the rate "
              "would fall at once from its top to its floor",
              c.warmup, c.decay);
  if (c.kind != Kind::wsd) return;
  rules.check(c.wsd_decay > 0 && c.wsd_decay <= c.decay - c.warmup,
              {"schedule.wsd_decay", "schedule.warmup", "schedule.decay", "run.steps"},
              "schedule.wsd_decay {} must be 1 to {}: the last phase of wsd lies between "
              "schedule.warmup {} "
              "and schedule.decay {}",
              c.wsd_decay, c.decay - c.warmup, c.warmup, c.decay);
}

void data_rules(const Settings& s, Rules& rules) {
  const DataSettings& d = s.data;
  const bool indexed = d.kind == DataKind::indexed;
  rules.check(!indexed || !d.path.empty() || !d.train_path.empty(), {"data.path", "data.kind"},
              "data.path is missing: data.kind = indexed reads PATH.bin and PATH.idx");
  rules.check(!indexed || d.path.empty() || d.train_path.empty(), {"data.train_path", "data.path"},
              "data.path and data.train_path are both given: a split of one, or a path for each "
              "part");
  rules.check(!indexed || d.validation_path.empty() || !d.train_path.empty(),
              {"data.validation_path", "data.train_path"},
              "data.validation_path needs data.train_path beside it");
  rules.check(!indexed || d.train_path.empty() || s.run.evaluate_every == 0 ||
                  !d.validation_path.empty() || !d.validation_sets.empty(),
              {"run.evaluate_every", "data.validation_path"},
              "run.evaluate_every {}: there is nothing to evaluate on: give data.validation_path "
              "or data.validation_sets",
              s.run.evaluate_every);
  try {
    parse_named_blends(d.validation_sets);
  } catch (const Error& error) {
    rules.check(false, {"data.validation_sets"}, "data.validation_sets: {}", error.what());
  }
  try {
    const double training = parse_split(d.split)[0];
    rules.check(training > 0, {"data.split"}, "data.split `{}` leaves nothing to train on",
                d.split);
  } catch (const Error& error) {
    rules.check(false, {"data.split"}, "data.split: {}", error.what());
  }
  rules.check(d.order != DataOrder::megatron || s.run.seed < (int64_t{1} << 32),
              {"run.seed", "data.order"},
              "run.seed {} is not below 2^32, as Megatron-LM's data order (data.order) needs it",
              s.run.seed);
  rules.check(d.eod < s.model.vocab, {"data.eod", "model.vocab"},
              "data.eod {} is not below model.vocab {}", d.eod, s.model.vocab);
  for (const auto& [name, on] : {std::pair{"data.eod_mask_loss", d.eod_mask_loss},
                                 {"data.reset_positions", d.reset_positions},
                                 {"data.reset_attention", d.reset_attention}})
    rules.check(!on || d.eod >= 0, {name, "data.eod"},
                "{} needs data.eod, the token that ends a document", name);
}

void checkpoint_rules(const Settings& s, Rules& rules) {
  const int64_t a = s.checkpoint.alignment;
  rules.check(a == 0 || (a >= 4 && (a & (a - 1)) == 0), {"checkpoint.alignment"},
              "checkpoint.alignment {} is not a power of two from 4 to 1024 KiB", a);
}

}  // namespace

std::vector<BrokenRule> broken_rules(const Settings& settings, int ranks) {
  Rules rules;
  model_rules(settings, rules);
  batch_rules(settings, rules);
  schedule_rules(settings, rules);
  data_rules(settings, rules);
  checkpoint_rules(settings, rules);
  layout_rules(settings, ranks, rules);
  return std::move(rules).broken();
}

}  // namespace trireme
