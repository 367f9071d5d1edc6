// From a model that was read to a checkpoint with its deck.
#include "convert/import.hpp"

#include <algorithm>

#include "convert/kept_files.hpp"
#include "convert/weights.hpp"
#include "trireme/comm/together.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/io/checkpoint_directory.hpp"
#include "trireme/io/json_text.hpp"

namespace trireme {
namespace convert {
namespace {

namespace fs = std::filesystem;

struct Places {
  bool run_directory = false;
  fs::path checkpoint, deck, kept;
};

Places places_of(const fs::path& output) {
  if (output.extension() == ".h5")
    return {false, output, fs::path(output).replace_extension(".ini"), kept_beside(output)};
  return {true, output / "checkpoints" / "step_000000000.h5", output / "deck.ini", output / "hf"};
}

Settings settings_of(const ModelSettings& model) {
  Settings settings = default_settings(model.family);
  settings.model = model;
  return settings;
}

bool holds_bf16(const Imported& imported) {
  return std::all_of(imported.links.begin(), imported.links.end(), [&](const TensorLink& link) {
    return imported.foreign.find(link.theirs)->type == FloatType::bf16;
  });
}

std::string deck_text(const ImportOptions& options, const Imported& imported,
                      const Places& places) {
  constexpr int64_t kUsualSequence = 2048;
  const HfModel& hf = imported.hf;
  std::string text = fmt::format(
      "# A {} imported from {}. Choose data, steps and learning rate.\n\n[run]\nsteps = 1000\n",
      hf.model_type, options.source.string());
  if (places.run_directory) text += fmt::format("directory = {}\n", options.output.string());
  text +=
      fmt::format("\n{}\n[precision]\ncompute = {}\n", section_text(settings_of(hf.model), "model"),
                  holds_bf16(imported) ? "bf16" : "f32");
  text += fmt::format(
      "\n[batch]\nsequence = {}  # tokens, at most {}\nglobal = 8  # sequences\nmicro = 1\n",
      std::min(hf.context, kUsualSequence), hf.context);
  text += "\n[optimizer]\nlearning_rate = 1e-5\n";
  text += "\n[data]\nkind = mock  # indexed, with path = PREFIX: your tokens\n";
  if (!hf.end_ids.empty()) text += fmt::format("eod = {}\n", hf.end_ids.front());
  text += "\n[checkpoint]\nevery = 100\n";
  if (!places.run_directory)
    text += fmt::format("load = {}\nload_optimizer = false  # weights alone: a fresh optimizer\n",
                        places.checkpoint.string());
  return text;
}

void require_free(const Places& places) {
  std::error_code fault;
  require(
      !fs::exists(places.checkpoint, fault) &&
          (!places.run_directory || list_checkpoints(places.checkpoint.parent_path()).empty()),
      ExitCode::usage, "{} exists: name another --output",
      places.run_directory ? places.checkpoint.parent_path().string() : places.checkpoint.string());
}

void write_small_files(const Places& places, const Imported& imported, const std::string& deck) {
  std::error_code fault;
  const fs::path parent = fs::absolute(places.checkpoint).parent_path();
  fs::create_directories(parent, fault);
  require(!fault, ExitCode::io, "cannot make the directory {}: {}", parent.string(),
          fault.message());
  if (!imported.kept.empty()) copy_files(imported.kept, places.kept);
  write_small_file(places.deck, deck);
}

}  // namespace

ModelShape shape_of(const ModelSettings& model) {
  return model_shape(settings_of(model));
}

ConvertReport finish_import(const CheckpointContext& context, const ImportOptions& options,
                            const Imported& imported) {
  const Places places = places_of(options.output);
  const std::string text = deck_text(options, imported, places);
  const Deck deck = parse_deck(text, places.deck.string(), {});
  together(context.world, [&] {
    if (context.world.rank() > 0) return;
    require_free(places);
    write_small_files(places, imported, text);
  });
  CheckpointHeader header;
  header.seed = static_cast<uint64_t>(deck.settings.run.seed);
  header.model_section = section_text(deck.settings, "model");
  header.optimizer_section = section_text(deck.settings, "optimizer");
  header.data_section = section_text(deck.settings, "data");
  const nlohmann::ordered_json sidecar = {{"step", 0},
                                          {"imported_from", options.source.string()},
                                          {"deck", to_deck_text(deck.settings)}};
  const SaveReport saved = write_checkpoint(
      context, imported.foreign, imported.links, places.checkpoint, header,
      sidecar.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  ConvertReport report;
  report.written = places.checkpoint;
  report.deck = places.deck;
  report.model = imported.hf.model_type;
  report.parameters = shape_of(imported.hf.model).parameters();
  report.bytes = saved.file_bytes;
  report.notes = imported.hf.notes;
  return report;
}

}  // namespace convert

ConvertReport import_hugging_face(const CheckpointContext& context, const ImportOptions& options) {
  std::optional<convert::Imported> imported;
  together(context.world, [&] {
    const std::filesystem::path& directory = options.source;
    std::error_code fault;
    require(std::filesystem::is_directory(directory, fault), ExitCode::no_input,
            "{} is not a directory", directory.string());
    const std::filesystem::path config = directory / convert::kConfig;
    HfModel hf = read_hf_config(read_json_file(config), config.string(), options.context);
    std::vector<TensorLink> links = hf_links(convert::shape_of(hf.model));
    ForeignModel foreign = ForeignModel::open_hugging_face(directory);
    match_tensors(foreign, links, hf.model.tied, directory.string());
    imported.emplace(convert::Imported{std::move(hf), std::move(foreign), std::move(links),
                                       convert::kept_files(directory)});
  });
  return convert::finish_import(context, options, *imported);
}

}  // namespace trireme
