// What a run leaves in its directory: checkpoints, the resolved deck, gradients on request.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/config/reference.hpp"
#include "trireme/train/trainer.hpp"
#include "trireme/train/version.hpp"

namespace trireme {
namespace {

CheckpointHeader header_of(const Settings& settings, const Progress& progress) {
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
  return header;
}

}  // namespace

void Trainer::load(const std::filesystem::path& path, bool with_state, Trust trust) {
  const CheckpointHeader header = read_header(path);
  std::string shapes;
  const std::string now = section_text(settings_, "model") + section_text(settings_, "optimizer") +
                          section_text(settings_, "data");
  const std::string then = header.model_section + header.optimizer_section + header.data_section;
  for (const SettingDifference& d : differences(then, now)) {
    if (d.effect == SettingEffect::shape)
      shapes +=
          fmt::format("\n  {}: {} in the checkpoint, {} in the deck", d.name, d.before, d.after);
    else if (d.effect == SettingEffect::numbers && with_state)
      log_.warning("{} was {} when the checkpoint was written; the deck's {} is used", d.name,
                   d.before, d.after);
  }
  require(shapes.empty(), ExitCode::bad_config, "{} is of another model:{}", path.string(), shapes);

  const CheckpointContext context{grid_.world(), device_.compute(), log_};
  std::vector<GlobalSlice> slices =
      with_state ? optimizer_->load_slices() : memory_->store.value_slices("weights/");
  load_checkpoint(context, path, slices, trust);
  if (with_state) {
    optimizer_->values_from_masters();
    progress_ = {header.step, header.consumed_samples, header.updates, header.update_samples};
  } else {
    optimizer_->masters_from_values();
    optimizer_->reset_moments();
  }
}

void Trainer::save() {
  if (watchdog_ != nullptr) watchdog_->begin(progress_.step);
  const auto timer = phases_.enter("save");
  const auto start = std::chrono::steady_clock::now();
  std::vector<GlobalSlice> slices = optimizer_->weight_slices();
  for (GlobalSlice& slice : optimizer_->state_slices()) slices.push_back(std::move(slice));
  nlohmann::ordered_json sidecar;
  sidecar["step"] = progress_.step;
  sidecar["grid"] = plan_.grid.text();
  sidecar["versions"] = version_text();
  sidecar["deck"] = to_deck_text(settings_);
  const SaveReport report =
      checkpoints_->save(header_of(settings_, progress_), slices, sidecar.dump(2) + "\n",
                         static_cast<int>(settings_.checkpoint.keep));
  saved_step_ = progress_.step;
  last_save_seconds_ = grid_.world().max(seconds_since(start));
  log_.info("saved {} ({:.1f} MiB in {:.2f} s, {:.2f} GB/s; rank {} wrote for {:.2f} s)",
            report.path.filename().string(), static_cast<double>(report.file_bytes) / (1 << 20),
            report.seconds, report.bytes_per_second() * 1e-9, report.slowest_rank,
            report.slowest_seconds);
  if (watchdog_ != nullptr) watchdog_->rest();
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
                      header_of(settings_, progress_), slices);
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
