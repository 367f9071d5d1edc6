#include "trireme/config/settings_table.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "config/settings_rows.hpp"

namespace trireme {
namespace {

std::vector<Setting> all_rows() {
  std::vector<Setting> rows;
  for (const auto& section :
       {run_rows(), grid_rows(), model_rows(), precision_rows(), batch_rows(), optimizer_rows(),
        schedule_rows(), data_rows(), checkpoint_rows(), log_rows(), fault_rows()})
    rows.insert(rows.end(), section.begin(), section.end());
  return rows;
}

// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

std::string lower(std::string_view text) {
  std::string result(text.substr(0, 64));  // no key is that long: bounds the work on nonsense
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

}  // namespace

const std::vector<SettingSection>& setting_sections() {
  static const std::vector<SettingSection> sections = {
      {"run", "Where a run lives and how long it is."},
      {"grid", "How ranks share the work: tp x cp x pp x dp = ranks."},
      {"model", "Sizes and arithmetic of the model."},
      {"precision", "Number types."},
      {"batch", "Sizes of batches."},
      {"optimizer", "AdamW."},
      {"schedule", "The learning rate over the run."},
      {"data", "Where tokens come from."},
      {"checkpoint", "What is saved and loaded."},
      {"log", "What is printed and recorded."},
      {"fault", "What ends a run that goes wrong."},
  };
  return sections;
}

const std::vector<Setting>& settings_table() {
  static const std::vector<Setting> rows = all_rows();
  return rows;
}

const Setting* find_setting(std::string_view name) {
  for (const Setting& row : settings_table())
    if (row.name == name) return &row;
  return nullptr;
}

std::string nearest_setting(std::string_view name) {
  const std::string wanted = lower(name);
  const size_t dot = wanted.find('.');
  const std::string key = dot == std::string::npos ? wanted : wanted.substr(dot + 1);
  const Setting* best = nullptr;
  size_t least = 0;
  for (const Setting& row : settings_table()) {
    // A key under the wrong section costs one edit, so that `[model] tp` finds grid.tp.
    const size_t distance =
        std::min(edit_distance(wanted, row.name), edit_distance(key, row.key()) + 1);
    if (best == nullptr || distance < least) {
      best = &row;
      least = distance;
    }
  }
  return best->name;
}

std::string nearest_section(std::string_view section) {
  const auto& all = setting_sections();
  const std::string wanted = lower(section);
  return std::min_element(all.begin(), all.end(),
                          [&](const SettingSection& a, const SettingSection& b) {
                            return edit_distance(wanted, a.name) < edit_distance(wanted, b.name);
                          })
      ->name;
}

Settings default_settings(Family family) {
  Settings settings;
  settings.model.family = family;
  if (family == Family::llama) {
    settings.model.tied = false;
    settings.model.bias = false;
    settings.model.rope_base = 500000;
  }
  return settings;
}

}  // namespace trireme
