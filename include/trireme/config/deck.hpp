// Decks: `[section]`, `key = value  # unit, meaning`, overridden by `--section.key=value`. Reading
// one lists every error at once, with file, line and the nearest valid key, before anything is
// allocated.
// `#` starts a comment everywhere. Local, not collective: rank 0 may read the text and send it.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/settings.hpp"
#include "trireme/config/settings_table.hpp"

namespace trireme {

struct Deck {
  Settings settings;               // resolved: derived defaults are filled in
  std::string name;                // file name as given
  std::set<std::string> given;     // "section.key" written in the deck or on the command line
  std::vector<std::string> notes;  // one line each, for the log
};

// Reads and checks a deck and its overrides; `ranks` 0 leaves out the checks that need the number
// of ranks. Throws Error(bad_config) that lists all errors, one a line.
Deck parse_deck(std::string_view text, const std::string& name,
                std::span<const std::string> overrides, int ranks = 0);
// The text of a deck file. Throws Error(no_input) when it cannot be read.
std::string read_deck_text(const std::string& path);
inline Deck read_deck(const std::string& path, std::span<const std::string> overrides,
                      int ranks = 0) {
  return parse_deck(read_deck_text(path), path, overrides, ranks);
}

// A whole deck with every key, unit and meaning; parsing it gives the same settings bit by bit.
std::string to_deck_text(const Settings& settings);
// The keys of one section that decide tensors or numbers, as `[section]` and `key = value` lines:
// the same for every layout, for checkpoint headers. Throws Error(internal) for an unknown section.
std::string section_text(const Settings& settings, std::string_view section);

struct SettingDifference {
  std::string name;           // "model.hidden"
  std::string before, after;  // values; "(none)" for a key that the text of an other version lacks
  SettingEffect effect = SettingEffect::numbers;
};
// Keys that differ between two deck texts, over the sections that both have (a checkpoint header
// holds only some, and no layout keys). Lenient: reads texts of other versions too.
std::vector<SettingDifference> differences(std::string_view before, std::string_view after);

// A longer run continues the schedule that it was started with: where the deck does not give
// schedule.decay, the length recorded in `stored` (deck text) is kept. Returns a line for the log,
// or
// "" when nothing changed.
std::string keep_decay(Deck& deck, std::string_view stored);

}  // namespace trireme
