#include "trireme/config/reference.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/settings_table.hpp"

namespace trireme {
namespace {

// "true (llama: false)", "0: model.heads", "required".
std::string default_text(const Setting& row) {
  if (row.required) return "required";
  const std::string value = value_text(row, default_settings(Family::gpt2));
  const std::string other = value_text(row, default_settings(Family::llama));
  if (!row.derived.empty()) return (value.empty() ? "empty" : value) + ": " + row.derived;
  if (value.empty()) return "empty";
  return value == other ? value : fmt::format("{} (llama: {})", value, other);
}

std::string allowed_text(const Setting& row) {
  const std::string range = range_text(row);
  return type_text(row) + (range.empty() ? "" : ", " + range);
}

std::string meaning(const Setting& row) {
  return row.only_with.empty() ? row.help
                               : fmt::format("{} Only with {}.", row.help, row.only_with);
}

std::string help_lines(const Setting& row) {
  std::string text = fmt::format("  {}\n      {}\n", row.name, meaning(row));
  const std::string unit = row.unit.empty() ? "" : fmt::format("; unit: {}", row.unit);
  return text +
         fmt::format("      {}{}; default: {}\n", allowed_text(row), unit, default_text(row));
}

std::string section_help(const SettingSection& section) {
  std::string text = fmt::format("[{}] {}\n", section.name, section.help);
  for (const Setting& row : settings_table())
    if (row.section() == section.name) text += help_lines(row);
  return text;
}

}  // namespace

std::string settings_help(std::string_view topic) {
  if (const Setting* row = find_setting(topic)) return help_lines(*row);
  std::string text;
  for (const SettingSection& section : setting_sections())
    if (topic.empty() || topic == section.name) text += section_help(section);
  if (!text.empty()) return text;
  return fmt::format("unknown key {}; the nearest valid key is {}\n", topic,
                     nearest_setting(topic));
}

std::string input_reference_markdown() {
  std::string text =
      "# Input decks\n\n"
      "Made from the table of settings in `src/config/settings_rows_*.cpp`: change it there, then\n"
      "`trireme plan --print-reference > doc/input.md`.\n\n"
      "A deck has sections and assignments; `#` starts a comment anywhere:\n\n"
      "```ini\n[grid]\ntp = 2  # ranks, tensor parallel\n```\n\n"
      "Every key can be set on the command line, where it wins over the deck: `--grid.tp=2`.\n"
      "Unknown, repeated or mistyped keys and values out of range stop the program with exit code "
      "78\n"
      "before anything is allocated, all of them listed at once. A missing deck is exit code 66. "
      "The\n"
      "deck as it was understood is written to the run directory as `deck.ini`.\n";
  for (const SettingSection& section : setting_sections()) {
    text += fmt::format(
        "\n## [{}]\n\n{}\n\n| key | allowed | unit | default | meaning |\n"
        "| --- | --- | --- | --- | --- |\n",
        section.name, section.help);
    for (const Setting& row : settings_table())
      if (row.section() == section.name)
        text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.key(), allowed_text(row),
                            row.unit, default_text(row), meaning(row));
  }
  return text;
}

}  // namespace trireme
