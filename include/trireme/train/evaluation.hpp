// The loss of weights on a source of samples, without a gradient: the trainer's validation, and
// `trireme eval`.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "trireme/base/log.hpp"
#include "trireme/comm/process_grid.hpp"
#include "trireme/config/settings.hpp"
#include "trireme/data/token_source.hpp"
#include "trireme/parallel/pipeline.hpp"
#include "trireme/train/batch_loader.hpp"
#include "trireme/train/rank_plan.hpp"

namespace trireme {

struct LossSum {
  double loss = 0;    // nats, of all counted tokens
  double tokens = 0;  // counted
  double mean() const { return loss / (tokens > 1 ? tokens : 1); }
};

// What a pass over samples needs. References outlive the call.
struct EvaluationPass {
  const Communicator& world;
  Stream& stream;
  StepState* state;
  BatchLoader& loader;
  Pipeline& pipeline;
  const ActionList& list;  // evaluates the micro-batches of `walk`
  PipelineShape shape;
  StepObserver* observer = nullptr;
  BatchWalk walk;
};

// Collective. Loss over samples [0, samples) of `source` (null on ranks that read nothing), summed
// batch by batch in f64 and over the ranks: the same weights, layout and batches give the same
// bits. `before_batch` may be empty.
LossSum sum_losses(const EvaluationPass& pass, const TokenSource* source, int64_t samples,
                   const std::function<void()>& before_batch);

// Tokens from `counted_from` (at least 1) on are scored, those before are given.
struct ScoredText {
  std::vector<int32_t> tokens;
  int64_t counted_from = 1;
};

// A model that only evaluates: no gradients, no optimizer, one stash.
class Evaluator {
 public:
  // Collective. Takes memory. Batch and layout are those of the settings. Throws Error(bad_config)
  // where memory does not suffice.
  Evaluator(const Settings& settings, const ProcessGrid& grid, Device& device);
  ~Evaluator();

  // Collective. Reads the weights of a checkpoint, which is verified first; throws as
  // load_checkpoint.
  void load(const std::filesystem::path& checkpoint, const Log& log);
  // True on ranks that read tokens.
  bool reads() const { return loader_->reads(); }
  // Collective. See `sum_losses`; samples are taken settings.batch.global at a time.
  LossSum run(const TokenSource* source, int64_t samples);
  // Collective, with the same texts on every rank: the summed loss of the counted tokens of each.
  // Texts are at most T + 1 tokens long; each has a row of a batch to itself.
  std::vector<double> score(std::span<const ScoredText> texts);
  const RankPlan& plan() const { return plan_; }

 private:
  StepBatch score_batch(std::span<const ScoredText> texts, int64_t first);
  Settings settings_;
  const ProcessGrid& grid_;
  Device& device_;
  RankPlan plan_;
  Arena arena_;
  std::unique_ptr<RankMemory> memory_;
  std::unique_ptr<LayerContext> context_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<BatchLoader> loader_;
  ActionList list_;
  Buffer losses_;  // of the tokens of a batch; last stage, once texts are scored
};

}  // namespace trireme
