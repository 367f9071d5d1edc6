// How a run begins: memory, data, the run directory, initial or loaded state.
#include <filesystem>

#include "trireme/config/layout.hpp"
#include "trireme/data/blend.hpp"
#include "trireme/ops/startup.hpp"
#include "trireme/train/shared_data.hpp"
#include "trireme/train/trainer.hpp"

namespace trireme {

Trainer::Trainer(Deck deck, const ProcessGrid& grid, Device& device, const Log& log)
    : deck_(std::move(deck)),
      settings_(deck_.settings),
      grid_(grid),
      device_(device),
      log_(log),
      plan_(rank_plan(settings_, grid.shape(), grid.here())),
      ramp_(batch_ramp(settings_)),
      rate_(learning_rate_of(settings_)),
      arena_(Arena::dry()) {
  build();
  open_sources();
}

Trainer::~Trainer() = default;

void Trainer::build() {
  Arena dry = Arena::dry();
  { const RankMemory walk(plan_, dry); }
  const size_t planned = dry.high_water_bytes();
  const size_t free = device_.free_bytes();
  grid_.world().require_all(
      planned <= free, ExitCode::bad_config,
      fmt::format("rank {} needs {:.2f} GiB but {:.2f} GiB are free: see `trireme plan`, and lower "
                  "batch.micro, raise tp or pp, or recompute",
                  grid_.world().rank(), static_cast<double>(planned) / (1 << 30),
                  static_cast<double>(free) / (1 << 30)));
  arena_ = Arena::real(planned);
  memory_ = std::make_unique<RankMemory>(plan_, arena_);
  require(arena_.high_water_bytes() == planned, ExitCode::internal,
          "the plan says {} bytes, the run took {}", planned, arena_.high_water_bytes());
  memory_->scratch.prepare(device_.compute());
  context_ = std::make_unique<LayerContext>(LayerContext{
      device_, grid_.tp(), memory_->state, device_.new_stream("tensor parallel"), {}, {}});
  sync_ = std::make_unique<GradientSync>(memory_->store, memory_->layout, grid_, device_);
  const OptimizerSettings& o = settings_.optimizer;
  const AdamWOptions options{static_cast<float>(o.beta1), static_cast<float>(o.beta2),
                             static_cast<float>(o.epsilon), static_cast<float>(o.weight_decay)};
  optimizer_ = std::make_unique<DistributedAdamW>(
      memory_->store, memory_->layout, memory_->optimizer, *sync_, grid_, options, device_);
  pipeline_ = std::make_unique<Pipeline>(memory_->chunks, memory_->pipeline, grid_, *context_);
  TargetOptions targets;
  targets.mask_end_of_document = settings_.data.eod_mask_loss;
  targets.end_of_document = static_cast<int32_t>(settings_.data.eod);
  loader_ = std::make_unique<BatchLoader>(plan_, memory_->batch, targets, device_.compute());
}

void Trainer::open_sources() {
  DataOptions options = data_options(settings_);
  options.train_samples = consumed_before(ramp_, settings_.run.steps);
  evaluates_ = settings_.run.evaluate_every > 0 && settings_.run.steps > 0;
  if (settings_.run.evaluate_every > 0) options.validation_samples = validation_request(settings_);
  if (settings_.run.steps == 0) return;
  data_ = open_shared_data(options, grid_.world(), loader_->reads(), log_);
  if (evaluates_) open_validation();
}

// The same list on every rank, also on those that read nothing.
void Trainer::open_validation() {
  const int64_t request = validation_request(settings_);
  const auto add = [&](const std::string& name, const TokenSource* source) {
    const int64_t samples = source == nullptr      ? 0
                            : request == kOneEpoch ? source->samples()
                                                   : request;
    const int64_t agreed = grid_.world().max(samples);
    if (agreed > 0) validation_.push_back({name, source, agreed});
  };
  add("validation", data_.validation.get());
  const std::vector<NamedBlend> named = parse_named_blends(settings_.data.validation_sets);
  for (size_t i = 0; i < named.size(); ++i) {
    const bool here = i < data_.validation_sets.size();
    add(named[i].name, here ? data_.validation_sets[i].source.get() : nullptr);
  }
}

void Trainer::open_sample_log() {
  if (!settings_.log.samples) return;
  const std::filesystem::path directory = settings_.run.directory;
  if (grid_.world().rank() == 0) SampleLog::cut(directory, progress_.step);
  grid_.world().barrier();
  if (!loader_->reads()) return;
  sample_log_ = std::make_unique<SampleLog>(directory, progress_.step, grid_.world().rank());
  loader_->keep_numbers();
}

void Trainer::open_directory() {
  const std::filesystem::path directory = settings_.run.directory;
  lease_ = take_run_lease(grid_.world(), directory, log_);
  const CheckpointHints hints{settings_.checkpoint.alignment << 10, settings_.checkpoint.stripes,
                              settings_.checkpoint.direct};
  const CheckpointContext context{grid_.world(), device_.compute(), log_, hints};
  checkpoints_ = std::make_unique<CheckpointDirectory>(context, directory, lease_.get());
  own_watchdog_ =
      std::make_unique<Watchdog>(Watchdog::Options{directory / "watchdog", grid_.world().rank(),
                                                   grid_.world().size(), settings_.fault.deadline});
  watchdog_ = own_watchdog_.get();
  phases_ = Phases(watchdog_);
  SaverOptions options;
  options.checkpoint = settings_.checkpoint;
  options.snapshot_bytes =
      snapshot_plan(settings_.checkpoint, memory_->layout, plan_.model.compute).bytes;
  options.hours_between_failures = settings_.fault.hours_between_failures;
  saver_ = std::make_unique<Saver>(
      context, *checkpoints_, options, [this] { return saved_state(); }, watchdog_);
}

void Trainer::restore() {
  const auto newest =
      checkpoints_->load_newest([this](const std::filesystem::path& path) { load(path, true); });
  if (newest) {
    log_.info("resumed from {} (step {})", newest->string(), progress_.step);
  } else if (!settings_.checkpoint.load.empty()) {
    load(settings_.checkpoint.load, settings_.checkpoint.load_optimizer);
    checkpoints_->protect(settings_.checkpoint.load);
    log_.info("started from {} (step {}{})", settings_.checkpoint.load, progress_.step,
              settings_.checkpoint.load_optimizer ? "" : ", weights only");
  } else {
    start_fresh();
  }
  if (newest) saver_->resumed_at(progress_.step);
  first_step_ = progress_.step;
  if (progress_.step < settings_.run.steps) record_end(false);
  if (progress_.step < settings_.run.steps || !newest) write_deck();
  if (grid_.world().rank() == 0)
    metrics_ = std::make_unique<MetricsFile>(
        std::filesystem::path(settings_.run.directory) / "metrics.jsonl", progress_.step);
  open_sample_log();
}

void Trainer::start_fresh() {
  const ParameterTable& table = memory_->table;
  std::vector<float> values;
  for (size_t i = 0; i < table.entries().size(); ++i) {
    const ParameterEntry& entry = table.entries()[i];
    values.resize(static_cast<size_t>(entry.real_elements()));
    table.initial_values(entry, static_cast<uint64_t>(settings_.run.seed), values);
    optimizer_->set_master(static_cast<int>(i), values);
  }
  optimizer_->reset_moments();
  optimizer_->values_from_masters();
}

void Trainer::announce() const {
  const ModelShape& m = plan_.model;
  log_.info("model: {} parameters, {} layers of width {}, {}", m.parameters(), m.layers, m.hidden,
            name_of(m.compute));
  log_.info("grid: {} ({}); {} on each rank", plan_.grid.text(),
            plan_.zero == 1 ? "ZeRO-1" : "replicated optimizer", device_.description());
  log_.info("mathematics: {}", math_description());
  std::string bytes;
  for (int stage = 0; stage < plan_.grid.pp; ++stage) {
    const auto mine = static_cast<int64_t>(arena_.high_water_bytes());
    bytes += fmt::format(" {}", grid_.world().max(plan_.here.pp == stage ? mine : 0));
  }
  log_.info("memory: bytes planned and taken on a rank of each stage:{}", bytes);
  if (data_.train) log_.info("data: training: {}", data_.train->description());
  for (const std::string& note : deck_.notes) log_.info("{}", note);
  if (progress_.step >= settings_.run.steps)
    log_.info("nothing to do: step {} of {} is done", progress_.step, settings_.run.steps);
}

}  // namespace trireme
