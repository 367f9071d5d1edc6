// Decks as text: printing, the sections of checkpoint headers, and comparison.
#include <algorithm>
#include <map>
#include <optional>

#include "config/deck_scan.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"

namespace trireme {
namespace {

using Values = std::map<std::string, std::string>;

// What a text says, in canonical form where the key is known, and the sections that occur in it.
struct LenientDeck {
  Values values;
  std::set<std::string> sections;
};

std::string section_of(const std::string& name) {
  return name.substr(0, name.find('.'));
}

std::string canonical(const Assignment& a) {
  const Setting* row = find_setting(a.name);
  Settings settings;
  if (row == nullptr || !set_value(*row, settings, a.value).empty()) return a.value;
  return value_text(*row, settings);
}

LenientDeck read_leniently(std::string_view text) {
  LenientDeck deck;
  for (const Assignment& a : scan_deck(text, "deck").assignments) {
    deck.values[a.name] = canonical(a);
    deck.sections.insert(section_of(a.name));
  }
  return deck;
}

}  // namespace

std::string to_deck_text(const Settings& settings) {
  std::string text = "# Resolved deck: every key with its value, unit and meaning.\n";
  for (const SettingSection& section : setting_sections()) {
    text += fmt::format("\n[{}]\n", section.name);
    for (const Setting& row : settings_table()) {
      if (row.section() != section.name) continue;
      const std::string assignment = fmt::format("{} = {}", row.key(), value_text(row, settings));
      const std::string unit = row.unit.empty() ? "" : row.unit + ". ";
      text += fmt::format("{:<32} # {}{}\n", assignment, unit, row.help);
    }
  }
  return text;
}

std::string section_text(const Settings& settings, std::string_view section) {
  std::string text = fmt::format("[{}]\n", section);
  bool any = false;
  for (const Setting& row : settings_table()) {
    if (row.section() != section || row.effect == SettingEffect::layout) continue;
    text += fmt::format("{} = {}\n", row.key(), value_text(row, settings));
    any = true;
  }
  require(any, ExitCode::internal, "no section [{}] for a checkpoint header", section);
  return text;
}

std::vector<SettingDifference> differences(std::string_view before, std::string_view after) {
  const LenientDeck a = read_leniently(before), b = read_leniently(after);
  std::set<std::string> names;
  for (const auto* deck : {&a, &b})
    for (const auto& [name, value] : deck->values) {
      const std::string section = section_of(name);
      if (a.sections.contains(section) && b.sections.contains(section)) names.insert(name);
    }
  std::vector<SettingDifference> result;
  for (const std::string& name : names) {
    const Setting* row = find_setting(name);
    const SettingEffect effect = row == nullptr ? SettingEffect::numbers : row->effect;
    const auto value = [&](const LenientDeck& deck) -> std::optional<std::string> {
      const auto found = deck.values.find(name);
      if (found != deck.values.end()) return found->second;
      // A text of before the key: what it has without it.
      if (row == nullptr || row->effect != SettingEffect::shape || row->required)
        return std::nullopt;
      return value_text(*row, Settings{});
    };
    const auto x = value(a), y = value(b);
    const bool header = effect == SettingEffect::layout && (!x || !y);
    if (x != y && !header)
      result.push_back({name, x.value_or("(none)"), y.value_or("(none)"), effect});
  }
  return result;
}

std::string keep_decay(Deck& deck, std::string_view stored) {
  if (deck.given.contains("schedule.decay")) return "";
  const LenientDeck before = read_leniently(stored);
  Settings recorded;
  for (const char* name : {"schedule.decay", "batch.global"}) {
    const auto found = before.values.find(name);
    if (found == before.values.end() ||
        !set_value(*find_setting(name), recorded, found->second).empty())
      return "";
  }
  const int64_t global = deck.settings.batch.global;
  const int64_t samples = checked_mul(recorded.schedule.decay, recorded.batch.global);
  const int64_t decay = ceil_div(samples, global);
  if (decay == 0 || decay == deck.settings.schedule.decay) return "";
  deck.settings.schedule.decay = decay;
  for (const BrokenRule& rule : broken_rules(deck.settings, 0))
    fail(ExitCode::bad_config,
         "{}: {} (schedule.decay was not given and stays as this run started)", deck.name,
         rule.text);
  return fmt::format(
      "schedule.decay stays {} steps of {} sequences, as this run was started; give the key to "
      "change it",
      decay, global);
}

}  // namespace trireme
