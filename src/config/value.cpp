// Values of settings from and to text: strict, and the same under every locale.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/settings_table.hpp"

namespace trireme {
namespace {

std::string number_text(double value) {
  return fmt::format("{}", value);
}

// Bounds of counts without exponent, up to 2^63.
std::string bound_text(double bound, bool whole) {
  return whole && std::abs(bound) < 9.2e18 ? fmt::format("{}", static_cast<int64_t>(bound))
                                           : number_text(bound);
}

bool inside(double value, const SettingRange& range) {
  const bool above = range.open_low ? value > range.low : value >= range.low;
  const bool below = range.open_high ? value < range.high : value <= range.high;
  return above && below;
}

template <class T>
std::string set_number(const Setting& setting, T& field, std::string_view text) {
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc() && end == text.data() + text.size();
  if (whole && std::isfinite(static_cast<double>(value)) &&
      inside(static_cast<double>(value), setting.range)) {
    field = value;
    return "";
  }
  return fmt::format("allowed is a {}, {}", type_text(setting), range_text(setting));
}

std::string set_bool(bool& field, std::string_view text) {
  for (std::string_view word : {"true", "yes", "on", "1"})
    if (text == word) return field = true, "";
  for (std::string_view word : {"false", "no", "off", "0"})
    if (text == word) return field = false, "";
  return "allowed is true or false";
}

std::string set_text(std::string& field, std::string_view text) {
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; }))
    return "a control character cannot be part of a value";
  if (text.find('#') != std::string_view::npos)
    return "'#' starts a comment in a deck and cannot be part of a value";
  if (!text.empty() && (text.front() == '"' || text.front() == '\''))
    return "values are written without quotes";
  if (text.size() > 4096) return "longer than 4096 bytes";
  field = text;
  return "";
}

std::string set_choice(const Setting& setting, uint8_t& field, std::string_view text) {
  const auto found = std::find(setting.choices.begin(), setting.choices.end(), text);
  if (found == setting.choices.end()) return "allowed is " + type_text(setting);
  field = static_cast<uint8_t>(found - setting.choices.begin());
  return "";
}

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

SettingField field_of(const Setting& setting, Settings& settings) {
  return setting.field(settings);
}

}  // namespace

std::string set_value(const Setting& setting, Settings& settings, std::string_view text) {
  return std::visit(Overloaded{
                        [&](bool* field) { return set_bool(*field, text); },
                        [&](int64_t* field) { return set_number(setting, *field, text); },
                        [&](double* field) { return set_number(setting, *field, text); },
                        [&](std::string* field) { return set_text(*field, text); },
                        [&](uint8_t* field) { return set_choice(setting, *field, text); },
                    },
                    field_of(setting, settings));
}

std::string value_text(const Setting& setting, const Settings& settings) {
  Settings copy = settings;
  return std::visit(Overloaded{
                        [](bool* field) { return std::string(*field ? "true" : "false"); },
                        [](int64_t* field) { return fmt::format("{}", *field); },
                        [](double* field) { return number_text(*field); },
                        [](std::string* field) { return *field; },
                        [&](uint8_t* field) { return setting.choices.at(*field); },
                    },
                    field_of(setting, copy));
}

bool has_effect(const Setting& setting, const Settings& settings) {
  if (setting.only_with.empty()) return true;
  const size_t equals = setting.only_with.find(" = ");
  const Setting* other = find_setting(setting.only_with.substr(0, equals));
  return value_text(*other, settings) == setting.only_with.substr(equals + 3);
}

std::string type_text(const Setting& setting) {
  Settings any;
  return std::visit(
      Overloaded{
          [](bool*) { return std::string("true or false"); },
          [](int64_t*) { return std::string("whole number"); },
          [](double*) { return std::string("number"); },
          [](std::string*) { return std::string("text"); },
          [&](uint8_t*) { return fmt::format("one of {}", fmt::join(setting.choices, ", ")); },
      },
      field_of(setting, any));
}

std::string range_text(const Setting& setting) {
  Settings any;
  const SettingField field = field_of(setting, any);
  const bool whole = std::holds_alternative<int64_t*>(field);
  if (!whole && !std::holds_alternative<double*>(field)) return "";
  const SettingRange& range = setting.range;
  std::string text = (range.open_low ? "above " : "") + bound_text(range.low, whole);
  if (!std::isfinite(range.high)) return text + (range.open_low ? "" : " or more");
  return text + (range.open_high ? " and below " : " to ") + bound_text(range.high, whole);
}

}  // namespace trireme
