#include "trireme/train/evaluation.hpp"

#include <algorithm>
#include <bit>

#include "trireme/io/checkpoint.hpp"

namespace trireme {

LossSum sum_losses(const EvaluationPass& pass, const TokenSource* source, int64_t samples,
                   const std::function<void()>& before_batch) {
  LossSum sum;  // batch by batch: a sum in f32 would lose tokens beyond 2^24
  for (int64_t first = 0; first < samples; first += pass.walk.global) {
    if (before_batch) before_batch();
    set_step(pass.stream, pass.state, {});
    pass.loader.prepare(source, pass.walk, first, samples);
    const StepBatch data = pass.loader.upload(pass.stream);
    pass.pipeline.run(pass.list, pass.shape, data, Mode::evaluate, pass.observer);
    const StepState result = get_step(pass.stream, pass.state);
    sum.loss += double{result.sums[0]};
    sum.tokens += double{result.sums[1]};
  }
  return {pass.world.sum(sum.loss), pass.world.sum(sum.tokens)};
}

Evaluator::Evaluator(const Settings& settings, const ProcessGrid& grid, Device& device)
    : settings_(settings),
      grid_(grid),
      device_(device),
      plan_(evaluation_plan(settings, grid.shape(), grid.here())),
      arena_(Arena::dry()) {
  Arena dry = Arena::dry();
  { const RankMemory walk(plan_, dry); }
  const size_t bytes = dry.high_water_bytes(), free = device.free_bytes();
  grid.world().require_all(
      bytes <= free, ExitCode::bad_config,
      fmt::format(
          "rank {} needs {:.2f} GiB but {:.2f} GiB are free: lower batch.micro, raise tp or "
          "pp",
          grid.world().rank(), static_cast<double>(bytes) / (1 << 30),
          static_cast<double>(free) / (1 << 30)));
  arena_ = Arena::real(bytes);
  memory_ = std::make_unique<RankMemory>(plan_, arena_);
  memory_->scratch.prepare(device.compute());
  context_ = std::make_unique<LayerContext>(LayerContext{
      device, grid.tp(), memory_->state, device.new_stream("tensor parallel"), {}, {}});
  pipeline_ = std::make_unique<Pipeline>(memory_->chunks, memory_->pipeline, grid, *context_);
  TargetOptions targets;
  targets.mask_end_of_document = settings.data.eod_mask_loss;
  targets.end_of_document = static_cast<int32_t>(settings.data.eod);
  loader_ = std::make_unique<BatchLoader>(plan_, memory_->batch, targets, device.compute());
  list_ = schedule_for(plan_.pipeline, plan_.here.pp, Pass::evaluate);
}

Evaluator::~Evaluator() = default;

void Evaluator::load(const std::filesystem::path& checkpoint, const Log& log) {
  load_checkpoint({grid_.world(), device_.compute(), log}, checkpoint,
                  memory_->store.value_slices("weights/"));
}

LossSum Evaluator::run(const TokenSource* source, int64_t samples) {
  const BatchWalk walk{settings_.batch.global, settings_.batch.micro, plan_.grid.dp};
  return sum_losses({grid_.world(), device_.compute(), memory_->state, *loader_, *pipeline_, list_,
                     plan_.pipeline, nullptr, walk},
                    source, samples, {});
}

// Uploads a batch of texts, from number `first` on.
StepBatch Evaluator::score_batch(std::span<const ScoredText> texts, int64_t first) {
  const BatchWalk walk{settings_.batch.global, settings_.batch.micro, plan_.grid.dp};
  const int64_t m = walk.micro_batches(), n = plan_.chunk.batch.tokens();
  const int64_t length = plan_.chunk.batch.sequence;
  std::vector<int32_t> inputs(static_cast<size_t>(m * n)), targets(inputs.size());
  std::vector<float> mask(inputs.size());
  for (int64_t i = 0; i < m * plan_.chunk.batch.micro; ++i) {
    const int64_t micro = plan_.chunk.batch.micro;
    const int64_t text = walk.sample(first, i / micro, plan_.here.dp, i % micro);
    if (text >= std::ssize(texts)) continue;
    const ScoredText& t = texts[static_cast<size_t>(text)];
    require(std::ssize(t.tokens) <= length + 1 && t.counted_from >= 1, ExitCode::internal,
            "text {} of {} tokens in rows of {}", text, t.tokens.size(), length);
    for (size_t k = 0; k + 1 < t.tokens.size(); ++k) {
      const size_t at = static_cast<size_t>(i * length) + k;
      inputs[at] = t.tokens[k];
      targets[at] = t.tokens[k + 1];
      mask[at] = static_cast<int64_t>(k) + 1 >= t.counted_from ? 1.0f : 0.0f;
    }
  }
  const auto send = [&](const auto& values, const TensorView& to) {
    if (!to.empty()) copy_to_device(device_.compute(), std::as_bytes(std::span(values)), to);
  };
  const BatchMemory& batch = memory_->batch;
  send(inputs, batch.tokens);
  send(targets, batch.targets);
  send(mask, batch.mask);
  device_.compute().synchronize();
  StepBatch data;
  const auto row = [&](const TensorView& view, int64_t i) {
    return view.empty() ? TensorView{} : view.rows(i, i + 1).as({n});
  };
  const TensorView losses{losses_.data(), plan_.last_stage() ? Shape{m, n} : Shape{}, DType::f32};
  for (int64_t i = 0; i < m; ++i)
    data.micro_batches.push_back({.tokens = row(batch.tokens, i),
                                  .targets = row(batch.targets, i),
                                  .mask = row(batch.mask, i),
                                  .positions = batch.positions.range(0, n),
                                  .sample_offset = walk.sample(0, i, plan_.here.dp, 0),
                                  .losses = row(losses, i)});
  return data;
}

std::vector<double> Evaluator::score(std::span<const ScoredText> texts) {
  const BatchWalk walk{settings_.batch.global, settings_.batch.micro, plan_.grid.dp};
  const int64_t length = plan_.chunk.batch.sequence, micro = plan_.chunk.batch.micro;
  const int64_t tokens = walk.micro_batches() * plan_.chunk.batch.tokens();
  std::vector<float> losses(static_cast<size_t>(tokens));
  if (plan_.last_stage() && losses_.bytes() == 0)
    losses_ = Buffer(losses.size() * sizeof(float), Memory::device);
  std::vector<double> sums(texts.size());
  for (int64_t first = 0; first < std::ssize(texts); first += walk.global) {
    Stream& stream = device_.compute();
    const StepBatch data = score_batch(texts, first);
    set_step(stream, memory_->state, {});
    pipeline_->run(list_, plan_.pipeline, data, Mode::evaluate, nullptr);
    stream.synchronize();
    if (!plan_.last_stage() || plan_.here.tp > 0) continue;
    copy_to_host(stream, {losses_.data(), {tokens}, DType::f32},
                 std::as_writable_bytes(std::span(losses)));
    stream.synchronize();
    for (int64_t i = 0; i < walk.micro_batches() * micro; ++i) {
      const int64_t text = walk.sample(first, i / micro, plan_.here.dp, i % micro);
      if (text >= std::ssize(texts)) continue;
      for (int64_t k = 0; k < length; ++k)
        sums[static_cast<size_t>(text)] += double{losses[static_cast<size_t>(i * length + k)]};
    }
  }
  // One rank has each sum, the others +0: adding bit patterns brings it to all.
  std::vector<uint64_t> bits(sums.size());
  std::ranges::transform(sums, bits.begin(), [](double x) { return std::bit_cast<uint64_t>(x); });
  grid_.world().sum_each(bits);
  std::ranges::transform(bits, sums.begin(), [](uint64_t x) { return std::bit_cast<double>(x); });
  return sums;
}

}  // namespace trireme
