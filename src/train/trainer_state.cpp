// What a run leaves in its directory: checkpoints, the resolved deck, gradients on request.
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/config/reference.hpp"
#include "trireme/train/trainer.hpp"
#include "trireme/train/version.hpp"

namespace trireme {
namespace {

CheckpointHeader header_of(const Settings& settings, const Progress& progress,
                           const LearningRate& rate) {
  CheckpointHeader header;
  header.step = progress.step;
  header.consumed_samples = progress.consumed_samples;
  header.consumed_tokens = progress.consumed_samples * settings.batch.sequence;
  header.updates = progress.updates;
  header.update_samples = progress.update_samples;
  header.seed = static_cast<uint64_t>(settings.run.seed);
  header.model_section = section_text(settings, "model");
  header.optimizer_section = section_text(settings, "optimizer");
  header.data_section = section_text(settings, "data");
  header.schedule_section = schedule_text(rate);
  return header;
}

}  // namespace

void Trainer::load(const std::filesystem::path& path, bool with_state) {
  const CheckpointContext context{grid_.world(), device_.compute(), log_};
  const CheckpointHeader header = read_header(context, path);
  if (with_state && !CheckpointFile(path).has_group("master")) {
    log_.info("{} holds weights alone: the optimizer starts fresh", path.string());
    with_state = false;
  }
  std::string shapes;
  const std::string now = section_text(settings_, "model") + section_text(settings_, "optimizer") +
                          section_text(settings_, "data");
  const std::string then = header.model_section + header.optimizer_section + header.data_section;
  for (const SettingDifference& d : differences(then, now)) {
    const bool of_schedule =
        d.name == "optimizer.learning_rate" && !header.schedule_section.empty();
    if (d.effect == SettingEffect::shape)
      shapes +=
          fmt::format("\n  {}: {} in the checkpoint, {} in the deck", d.name, d.before, d.after);
    else if (d.effect == SettingEffect::numbers && with_state && !of_schedule)
      log_.warning("{} was {} when the checkpoint was written; the deck's {} is used", d.name,
                   d.before, d.after);
  }
  require(shapes.empty(), ExitCode::bad_config, "{} is of another model:{}", path.string(), shapes);
  if (with_state) take_schedule(header, path);

  if (!with_state) memory_->store.zero_values(device_.compute());
  std::vector<GlobalSlice> slices =
      with_state ? optimizer_->load_slices() : memory_->store.value_slices("weights/");
  load_checkpoint(context, path, slices);
  if (with_state) {
    optimizer_->values_from_masters();
    progress_ = {header.step, header.consumed_samples, header.updates, header.update_samples};
  } else {
    optimizer_->masters_from_values();
    optimizer_->reset_moments();
  }
}

// The course of the learning rate is the run's: a longer run keeps the length it was started with,
// and anything else that differs needs the deck's word.
void Trainer::take_schedule(const CheckpointHeader& header, const std::filesystem::path& path) {
  if (header.schedule_section.empty()) return;
  const std::optional<LearningRate> stored = parse_schedule(header.schedule_section);
  require(stored.has_value(), ExitCode::bad_data, "{}: the schedule in its header is not readable",
          path.string());
  const std::string note = keep_decay(
      deck_, fmt::format("[schedule]\ndecay = {}\n[batch]\nglobal = 1\n", stored->decay));
  if (!note.empty()) log_.info("{}", note);
  rate_ = learning_rate_of(settings_);
  const auto differ = schedule_differences(header.schedule_section, schedule_text(rate_));
  if (differ.empty()) return;
  const std::string list = fmt::format("\n  {}", fmt::join(differ, "\n  "));
  using Resume = ScheduleSettings::Resume;
  require(settings_.schedule.resume != Resume::same, ExitCode::bad_config,
          "{} was saved under another learning-rate schedule:{}\nschedule.resume = keep goes on "
          "with its, schedule.resume = replace with the deck's",
          path.string(), list);
  const bool keeps = settings_.schedule.resume == Resume::keep;
  log_.info("the learning-rate schedule is that of the {}:{}", keeps ? "checkpoint" : "deck", list);
  if (keeps) rate_ = *stored;
}

SavedState Trainer::saved_state() {
  SavedState state;
  state.header = header_of(settings_, progress_, rate_);
  state.slices = optimizer_->weight_slices();
  for (GlobalSlice& slice : optimizer_->state_slices()) state.slices.push_back(std::move(slice));
  nlohmann::ordered_json sidecar;
  sidecar["step"] = progress_.step;
  sidecar["grid"] = plan_.grid.text();
  sidecar["versions"] = version_text();
  sidecar["deck"] = to_deck_text(settings_);
  state.sidecar = sidecar.dump(2) + "\n";
  if (stop_ != nullptr) stop_->saved();
  return state;
}

void Trainer::dump_gradients() {
  std::vector<GlobalSlice> slices;
  for (const OwnedPiece& piece : memory_->layout.pieces()) {
    if (!memory_->layout.speaks_for(piece)) continue;
    const ParameterEntry& entry = memory_->table.entries()[static_cast<size_t>(piece.entry)];
    const TensorView flat = memory_->store.group_gradients(entry.group);
    const int64_t at = entry.offset + piece.first;
    for (GlobalSlice& slice :
         slices_of(entry, piece.first, piece.count, flat.range(at, at + piece.count).data,
                   DType::f32, "gradients/" + entry.spec.name))
      slices.push_back(std::move(slice));
  }
  const std::filesystem::path directory =
      std::filesystem::path(settings_.run.directory) / "gradients";
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  const CheckpointContext context{grid_.world(), device_.compute(), log_};
  CheckpointSave save(context, directory / fmt::format("step_{:09}.h5", progress_.step + 1),
                      header_of(settings_, progress_, rate_), slices);
  save.commit(save.write(), "{}\n");
  log_.info("gradients of step {} (sums over counted tokens) are in {}", progress_.step + 1,
            directory.string());
}

void Trainer::write_deck() const {
  bool written = true;
  const std::filesystem::path path = std::filesystem::path(settings_.run.directory) / "deck.ini";
  if (grid_.world().rank() == 0) {
    const std::filesystem::path temporary = path.string() + ".tmp";
    std::ofstream out(temporary, std::ios::trunc);
    out << to_deck_text(settings_);
    out.close();
    std::error_code fault, ignored;
    written = out.good();
    if (written) std::filesystem::rename(temporary, path, fault);
    written = written && !fault;
    if (!written) std::filesystem::remove(temporary, ignored);
  }
  grid_.world().require_all(written, ExitCode::io,
                            "cannot write " + path.string() +
                                ": choose a run.directory that can be written and has space");
}

}  // namespace trireme
