#include "trireme/train/checkpoint_deck.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "trireme/config/layout.hpp"
#include "trireme/io/checkpoint_directory.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Tokens of a sequence where neither deck nor position table says.
constexpr int64_t kUsualSequence = 2048;

fs::path find_checkpoint(const std::string& path) {
  std::error_code fault;
  require(fs::exists(path, fault), ExitCode::no_input,
          "{}: no such checkpoint, and no run directory", path);
  if (!fs::is_directory(path, fault)) return path;
  const fs::path inner = fs::path(path) / "checkpoints";
  const fs::path directory = fs::is_directory(inner, fault) ? inner : fs::path(path);
  const std::vector<NamedCheckpoint> found = list_checkpoints(directory);
  require(!found.empty(), ExitCode::no_input,
          "{}: no checkpoint (step_*.h5) in this directory: name the file, or the directory of a "
          "run that has saved",
          directory.string());
  return found.front().path;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The deck in the file beside the checkpoint; empty where there is none.
std::string deck_beside(const fs::path& checkpoint) {
  const fs::path path = fs::path(checkpoint).replace_extension(".json");
  const auto json = nlohmann::json::parse(text_of(path), nullptr, false);
  if (!json.is_object() || !json.contains("deck") || !json["deck"].is_string()) return "";
  return json["deck"];
}

// The value of an override, "" where it is not given.
std::string override_of(std::span<const std::string> overrides, const std::string& key) {
  for (const std::string& word : overrides)
    if (word.starts_with("--" + key + "=")) return word.substr(key.size() + 3);
  return "";
}

// A deck of what the checkpoint itself says; a batch is one micro-batch on each rank.
std::string deck_of_header(const CheckpointFile& file, std::span<const std::string> overrides,
                           int ranks) {
  const CheckpointHeader& header = file.header();
  const bool bf16 = std::ranges::any_of(file.tensors(), [](const StoredTensor& tensor) {
    return tensor.name.starts_with("weights/") && tensor.dtype == DType::bf16;
  });
  int64_t sequence = kUsualSequence;
  for (const SettingDifference& d : differences(header.model_section, "[model]\npositions = none"))
    if (d.name == "model.positions" && std::atoll(d.before.c_str()) > 0)
      sequence = std::atoll(d.before.c_str());
  const int64_t micro = std::max(1, std::atoi(override_of(overrides, "batch.micro").c_str()));
  return fmt::format(
      "[run]\nsteps = 0\nseed = {}\n[precision]\ncompute = {}\n[batch]\nsequence = {}\nglobal = "
      "{}\n"
      "{}{}",
      header.seed, bf16 ? "bf16" : "f32", sequence, micro * ranks, header.model_section,
      header.data_section);
}

std::string deck_text(const fs::path& checkpoint, std::span<const std::string> overrides,
                      int ranks) {
  const CheckpointFile file(checkpoint);
  std::string text = deck_beside(checkpoint);
  const fs::path folder = fs::absolute(checkpoint).parent_path();
  if (text.empty() && folder.filename() == "checkpoints")
    text = text_of(folder.parent_path() / "deck.ini");
  return text.empty() ? deck_of_header(file, overrides, ranks) : text;
}

bool overrides_key(std::span<const std::string> overrides, const std::string& start) {
  return std::ranges::any_of(overrides,
                             [&](const std::string& word) { return word.starts_with(start); });
}

// Without a grid on the command line: the deck's, else the nearest that fits.
void fit_grid(Settings& settings, int ranks, bool asked) {
  if (asked || broken_rules(settings, ranks).empty()) return;
  const std::vector<GridShape> fitting = fitting_grids(settings, ranks);
  if (fitting.empty()) return;
  settings.grid.tp = fitting.front().tp;
  settings.grid.cp = 1;
  settings.grid.pp = fitting.front().pp;
  if (settings.grid.tp == 1) settings.grid.sequence_parallel = false;
}

}  // namespace

CheckpointDeck open_checkpoint_deck(const Communicator& world, const std::string& path,
                                    std::span<const std::string> overrides,
                                    const std::function<void(Settings&)>& adjust) {
  CheckpointDeck result;
  std::string file, text, fault;
  ExitCode code = ExitCode::ok;
  if (world.rank() == 0) {
    try {
      file = find_checkpoint(path).string();
      text = deck_text(file, overrides, world.size());
    } catch (const Error& e) {
      fault = e.what();
      code = e.code();
    }
  }
  const auto worst = static_cast<ExitCode>(world.max(static_cast<int64_t>(code)));
  world.require_all(fault.empty(), worst, fault);
  result.file = world.broadcast(file, 0);
  result.header = read_header(result.file);
  result.deck =
      parse_deck(world.broadcast(text, 0), "the deck of " + result.file.string(), overrides);
  Settings& settings = result.deck.settings;
  if (!overrides_key(overrides, "--grid.dp=")) settings.grid.dp = 0;
  adjust(settings);
  fit_grid(settings, world.size(), overrides_key(overrides, "--grid."));
  result.grid = grid_shape(settings, world.size());
  return result;
}

}  // namespace trireme
