#include "config/deck_scan.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/config/settings_table.hpp"

namespace trireme {
namespace {

namespace po = boost::program_options;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\v\f");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\v\f") - first + 1);
}

// Every key as a string: our own table parses values (Boost takes -5 as a huge unsigned number).
po::options_description boost_options() {
  po::options_description options;
  for (const Setting& row : settings_table())
    options.add_options()(row.name.c_str(), po::value<std::string>());
  return options;
}

std::vector<Assignment> read_with_boost(const std::string& text) {
  std::istringstream stream(text);
  const po::options_description options = boost_options();
  std::vector<Assignment> result;
  for (const auto& option : po::parse_config_file(stream, options, true).options)
    result.push_back({option.string_key, option.value.empty() ? "" : option.value.front(), {}});
  return result;
}

bool is_section(std::string_view name) {
  const auto& all = setting_sections();
  return std::any_of(all.begin(), all.end(), [&](const auto& s) { return s.name == name; });
}

bool is_plain(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c > 32 && c < 127 && c != '[' && c != ']' && c != '*';
  });
}

// One pass over the lines: problems, a text that Boost reads to its end, and the place of each
// assignment in it.
class LineScan {
 public:
  explicit LineScan(const std::string& name) : name_(name) {}

  void line(std::string_view raw) {
    ++number_;
    const std::string_view text = trimmed(raw.substr(0, raw.find('#')));
    if (text.empty()) return;
    if (text.front() == '[') return section(text);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos)
      return problem("expected `key = value` or `[section]`, found `{}`", shown(text));
    const std::string_view key = trimmed(text.substr(0, equals));
    if (!is_plain(key)) return problem("`{}` is not the name of a key", shown(key));
    if (skipping_) return;
    clean_ += fmt::format("{}\n", text);
    places_.push_back(place());
  }

  ScannedDeck result() && {
    std::vector<Assignment> read = read_with_boost(clean_);
    require(read.size() == places_.size(), ExitCode::internal,
            "{}: {} assignments were read and {} scanned", name_, read.size(), places_.size());
    for (size_t i = 0; i < read.size(); ++i) read[i].place = places_[i];
    return {std::move(read), std::move(problems_)};
  }

 private:
  Place place() const { return {fmt::format("{}:{}", name_, number_), number_}; }
  static std::string shown(std::string_view text) {
    std::string result(text.substr(0, 60));
    std::replace_if(
        result.begin(), result.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
    return result;
  }
  void problem(fmt::format_string<std::string> text, std::string found) {
    problems_.push_back({place(), fmt::format(text, std::move(found))});
  }
  void section(std::string_view text) {
    skipping_ = true;
    if (text.back() != ']') return problem("`{}` does not end with ]", shown(text));
    std::string section(trimmed(text.substr(1, text.size() - 2)));
    if (!is_section(section)) {
      const std::string nearest = nearest_section(section);
      problems_.push_back(
          {place(), fmt::format("unknown section [{}]; the nearest valid one is [{}]. Its "
                                "keys are not read",
                                shown(section), nearest)});
      return;
    }
    skipping_ = false;
    clean_ += fmt::format("[{}]\n", section);
  }

  std::string name_;
  int number_ = 0;
  bool skipping_ = false;  // under a section that is not known
  std::string clean_;
  std::vector<Place> places_;
  std::vector<Problem> problems_;
};

Place place_of(const std::string& argument) {
  return {fmt::format("command line ({})", argument)};
}

// Guessing is off: only the whole name of a key is taken.
Assignment override_with_boost(const std::string& argument) {
  constexpr int kStyle =
      po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent;
  const po::options_description options = boost_options();
  const auto parsed = po::command_line_parser(std::vector<std::string>{argument})
                          .options(options)
                          .style(kStyle)
                          .allow_unregistered()
                          .run();
  require(parsed.options.size() == 1, ExitCode::internal, "`{}` was not read as one option",
          argument);
  const auto& option = parsed.options.front();
  const std::string value = option.value.empty() ? "" : option.value.front();
  return {option.string_key, std::string(trimmed(value)), place_of(argument)};
}

}  // namespace

ScannedDeck scan_deck(std::string_view text, const std::string& name) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // byte order mark
  LineScan scan(name);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    scan.line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(scan).result();
}

ScannedDeck scan_overrides(std::span<const std::string> arguments) {
  ScannedDeck result;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (name.size() < 3 || !name.starts_with("--") || !is_plain(name) ||
        equals == std::string::npos) {
      result.problems.push_back({place_of(argument), "expected --section.key=value"});
    } else if (equals + 1 == argument.size()) {  // an empty text; Boost refuses it
      result.assignments.push_back({name.substr(2), "", place_of(argument)});
    } else {
      result.assignments.push_back(override_with_boost(argument));
    }
  }
  return result;
}

}  // namespace trireme
