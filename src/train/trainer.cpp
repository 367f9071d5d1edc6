#include "trireme/train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "trireme/parallel/replica_check.hpp"
#include "trireme/train/evaluation.hpp"

namespace trireme {

ExitCode Trainer::run() {
  open_directory();
  restore();
  announce();
  while (progress_.step < settings_.run.steps && !should_stop()) {
    report(advance());
    const int64_t step = progress_.step;
    auto due = [&](int64_t every) { return every > 0 && step % every == 0; };
    if (due(settings_.fault.check_replicas)) check_replicas();
    if (evaluates_ && (due(settings_.run.evaluate_every) || step == settings_.run.steps))
      evaluate();
    if (due(settings_.checkpoint.every) || asked_ == Stop::save) saver_->save();
  }
  saver_->settle();
  if (saver_->saved_step() != progress_.step && time_to_save()) saver_->save_now();
  settle();
  const bool done = progress_.step >= settings_.run.steps;
  record_end(done);
  if (!done) log_.info("stopped after step {}; start again to go on", progress_.step);
  return done ? ExitCode::ok : ExitCode::stopped;
}

StepReport Trainer::advance() {
  const auto start = std::chrono::steady_clock::now();
  if (watchdog_ != nullptr) watchdog_->begin(progress_.step + 1);
  const int64_t batch = batch_now();
  forward_and_backward(batch);
  {
    const auto timer = phases_.enter("reduce gradients");
    sync_->finish();
  }
  if (progress_.step + 1 == settings_.log.gradients_at) dump_gradients();
  {
    const auto timer = phases_.enter("optimizer");
    optimizer_->finish_norm(memory_->state);
    optimizer_->step(memory_->state);
  }
  {
    const auto timer = phases_.enter("read next batch");
    prepare(progress_.consumed_samples + batch);
  }
  StepState result;
  {
    const auto timer = phases_.enter("wait for loss");
    result = get_step(device_.compute(), memory_->state);
  }
  return finish_step(result, batch, seconds_since(start));
}

void Trainer::settle() {
  sync_->wait_values();
  device_.compute().synchronize();
}

void Trainer::time_exposed(bool on) {
  for (StreamTimer* timer : {&context_->tp_exposed, &pipeline_->exposed(), &sync_->exposed_reduce(),
                             &sync_->exposed_gather()})
    timer->switch_on(on);
  context_->tp_shards = 0;
}

ExposedTimes Trainer::exposed() {
  return {.tp = context_->tp_exposed.seconds(),
          .pp = pipeline_->exposed().seconds(),
          .reduce = sync_->exposed_reduce().seconds(),
          .gather = sync_->exposed_gather().seconds(),
          .tp_shards = context_->tp_shards};
}

int64_t Trainer::batch_now() const {
  return batch_size_at(ramp_, progress_.consumed_samples);
}

StepState Trainer::step_state() const {
  StepState state = {};
  state.seed = static_cast<uint64_t>(settings_.run.seed);
  state.step = progress_.step;
  state.first_sample = progress_.consumed_samples;
  state.learning_rate = static_cast<float>(learning_rate_at(rate_, progress_.update_samples));
  state.clip = static_cast<float>(settings_.optimizer.clip);
  state.correction1 =
      bias_correction(static_cast<float>(settings_.optimizer.beta1), progress_.updates);
  state.correction2 =
      bias_correction(static_cast<float>(settings_.optimizer.beta2), progress_.updates);
  state.training = 1;
  return state;
}

const ActionList& Trainer::list_for(int64_t micro_batches, Pass pass) {
  ActionList& list = lists_[{micro_batches, pass}];
  if (list.empty()) {
    PipelineShape shape = plan_.pipeline;
    shape.micro_batches = static_cast<int>(micro_batches);
    list = schedule_for(shape, plan_.here.pp, pass);
  }
  return list;
}

void Trainer::prepare(int64_t consumed) {
  const int64_t batch = batch_size_at(ramp_, consumed);
  if (data_.train == nullptr || consumed + batch > data_.train->samples()) return;
  loader_->prepare(data_.train.get(), {batch, settings_.batch.micro, plan_.grid.dp}, consumed,
                   data_.train->samples());
}

void Trainer::forward_and_backward(int64_t batch) {
  const BatchWalk walk{batch, settings_.batch.micro, plan_.grid.dp};
  Stream& compute = device_.compute();
  StepBatch data;
  {
    const auto timer = phases_.enter("data");
    if (loader_->reads()) {
      require(progress_.consumed_samples + batch <= data_.train->samples(), ExitCode::internal,
              "step {} asks for samples beyond the {} of the data", progress_.step + 1,
              data_.train->samples());
      prepare(progress_.consumed_samples);
    } else {
      loader_->prepare(nullptr, walk, progress_.consumed_samples, 0);
    }
    data = loader_->upload(compute);
    if (sample_log_) sample_log_->append(progress_.step + 1, plan_.here.dp, loader_->uploaded());
  }
  const auto timer = phases_.enter("forward and backward");
  set_step(compute, memory_->state, step_state());
  memory_->store.zero_gradients(compute);
  sync_->begin_step();
  PipelineShape shape = plan_.pipeline;
  shape.micro_batches = static_cast<int>(walk.micro_batches());
  pipeline_->run(list_for(shape.micro_batches, Pass::train), shape, data, Mode::train, sync_.get());
}

StepReport Trainer::finish_step(const StepState& result, int64_t batch, double seconds) {
  StepReport r;
  r.learning_rate = learning_rate_at(rate_, progress_.update_samples);
  r.skipped = result.skip != 0;
  progress_.step += 1;
  progress_.consumed_samples += batch;
  if (!r.skipped) {
    progress_.updates += 1;
    progress_.update_samples += batch;
  }
  skipped_in_a_row_ = r.skipped ? skipped_in_a_row_ + 1 : 0;
  const double tokens = static_cast<double>(batch * settings_.batch.sequence);
  const double ranks = plan_.grid.ranks();
  r.step = progress_.step;
  r.steps = settings_.run.steps;
  r.consumed_samples = progress_.consumed_samples;
  r.consumed_tokens = progress_.consumed_samples * settings_.batch.sequence;
  r.loss = result.sums[1] > 0 ? double{result.sums[0]} / double{result.sums[1]} : 0;
  r.grad_norm = result.norm;
  r.step_seconds = seconds;
  r.tokens_per_second = tokens / seconds;
  const double flops =
      tokens * static_cast<double>(plan_.model.flops_per_token(settings_.batch.sequence));
  r.tflops_per_rank = flops / seconds / ranks * 1e-12;
  const double peak = device_.peak_flops(plan_.model.compute);
  if (peak > 0) r.mfu = flops / seconds / ranks / peak;
  recent_seconds_ = recent_seconds_ == 0 ? seconds : 0.9 * recent_seconds_ + 0.1 * seconds;
  r.eta_seconds = recent_seconds_ * static_cast<double>(r.steps - r.step);
  if (watchdog_ != nullptr) watchdog_->rest();
  return r;
}

void Trainer::report(const StepReport& r) {
  if (metrics_ && !metrics_->append(r)) {
    log_.warning("metrics.jsonl cannot be written; training goes on without it");
    metrics_.reset();
  }
  if (r.skipped)
    log_.warning("step {}: the gradient is not finite, no update (global samples {} to {})", r.step,
                 consumed_before(ramp_, r.step - 1), r.consumed_samples - 1);
  const bool last = r.step == r.steps;
  if (r.step % settings_.log.every == 0 || r.skipped || last) {
    if (lines_++ % 20 == 0) log_.info("{}", status_header());
    log_.info("{}", status_line(r));
  }
  if (skipped_in_a_row_ < settings_.fault.skip_limit) return;
  saver_->settle();
  fail(ExitCode::internal,
       "{} steps in a row had a gradient that is not finite (fault.skip_limit); the last "
       "checkpoint is of step {}. Lower optimizer.learning_rate or look at the data",
       skipped_in_a_row_, saver_->saved_step());
}

void Trainer::evaluate() {
  const auto timer = phases_.enter("evaluate");
  for (const ValidationSet& set : validation_) evaluate(set);
  if (watchdog_ != nullptr) watchdog_->rest();
}

void Trainer::evaluate(const ValidationSet& set) {
  int64_t tokens = 0;
  const double loss = validation_loss(set, tokens);
  log_.info("{} loss {:.4f} after step {} ({} tokens, perplexity {:.2f})", set.name, loss,
            progress_.step, tokens, std::exp(std::min(20.0, loss)));
  if (metrics_) metrics_->append_validation(progress_.step, set.name, loss, tokens);
}

double Trainer::validation_loss(const ValidationSet& set, int64_t& tokens) {
  const BatchWalk walk{settings_.batch.global, settings_.batch.micro, plan_.grid.dp};
  const EvaluationPass pass{
      grid_.world(),  device_.compute(), memory_->state,
      *loader_,       *pipeline_,        list_for(walk.micro_batches(), Pass::evaluate),
      plan_.pipeline, sync_.get(),       walk};
  const LossSum sum = sum_losses(pass, set.source, set.samples, [this] {
    if (watchdog_ != nullptr) watchdog_->begin(progress_.step);
  });
  tokens = std::llround(sum.tokens);
  return sum.mean();
}

void Trainer::check_replicas() {
  if (watchdog_ != nullptr) watchdog_->begin(progress_.step);
  const auto timer = phases_.enter("check replicas");
  sync_->wait_values();
  const std::vector<std::string> names = replica_mismatch(memory_->store, grid_, device_);
  if (names.empty()) return;
  saver_->settle();
  fail(ExitCode::internal,
       "after step {} copies of {} parameters differ between ranks that must hold the same bits, "
       "first {}: the last checkpoint is of step {}; suspect a device",
       progress_.step, names.size(), names.front(), saver_->saved_step());
}

}  // namespace trireme
