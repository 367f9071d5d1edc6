// The one table of settings: section, key, field, unit, range, meaning. Reading decks, printing the
// resolved deck, help and doc/input.md are walks over it, so a new key is one member and one row.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/config/settings.hpp"

namespace trireme {

// The member of a Settings that a row is bound to. uint8_t is the value of an enumeration, an index
// into Setting::choices.
using SettingField = std::variant<bool*, int64_t*, double*, std::string*, uint8_t*>;

// Allowed values of a number; `open` leaves the bound itself out.
struct SettingRange {
  double low = 0, high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;
};

// What a key decides about a run.
enum class SettingEffect : uint8_t {
  shape,    // which tensors there are: a checkpoint of another value cannot be continued
  numbers,  // what is computed
  layout,   // how and where: two runs differ by rounding only; left out of checkpoint headers
};

struct Setting {
  std::string name = {};  // "grid.tp"
  std::function<SettingField(Settings&)> field = {};
  std::string unit = {};                  // "" where there is none
  SettingRange range = {};                // numbers only
  std::vector<std::string> choices = {};  // enumerations only
  std::string derived = {};               // what the default 0, -1 or empty stands for
  std::string only_with = {};  // "model.family = llama": without it the value has no effect
  bool required = false;
  SettingEffect effect = SettingEffect::numbers;
  std::string help = {};

  std::string section() const { return name.substr(0, name.find('.')); }
  std::string key() const { return name.substr(name.find('.') + 1); }
};

struct SettingSection {
  std::string name;
  std::string help;
};

const std::vector<SettingSection>& setting_sections();
const std::vector<Setting>& settings_table();
// Null for an unknown "section.key".
const Setting* find_setting(std::string_view name);
// The valid name with the smallest edit distance; a key in the wrong section is found too.
std::string nearest_setting(std::string_view name);
std::string nearest_section(std::string_view section);

// Defaults differ between families: llama has no biases, an untied head and RoPE base 500000.
Settings default_settings(Family family);

// Writes `text` into the row's field. Returns what is wrong with it, in words with the allowed
// range, or
// "" when it was taken. Numbers must be whole ("4k", "1e3" for a count, "0,1", overflow and NaN are
// refused whatever the locale is).
std::string set_value(const Setting& setting, Settings& settings, std::string_view text);
// The text that set_value reads back to the same value, bit by bit.
std::string value_text(const Setting& setting, const Settings& settings);
// False where the value has no effect, as Setting::only_with says.
bool has_effect(const Setting& setting, const Settings& settings);
// "whole number", "number", "true or false", "text", "one of a, b".
std::string type_text(const Setting& setting);
std::string range_text(const Setting& setting);  // "1 to 4096", "above 0"; "" for other types

}  // namespace trireme
