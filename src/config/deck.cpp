#include "trireme/config/deck.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include "config/deck_scan.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/layout.hpp"

namespace trireme {
namespace {

constexpr size_t kMostDeckBytes = 1 << 20;
constexpr size_t kMostShown = 100;

// Collects every problem of a deck and its overrides while filling the settings.
class DeckReader {
 public:
  DeckReader(std::string_view text, const std::string& name, std::span<const std::string> overrides)
      : file_(scan_deck(text, name)), line_(scan_overrides(overrides)) {
    deck_.name = name;
    problems_ = file_.problems;
    problems_.insert(problems_.end(), line_.problems.begin(), line_.problems.end());
  }

  Deck read(int ranks) && {
    deck_.settings = default_settings(family());
    take(file_);
    take(line_);
    find_missing();
    deck_.notes = resolve(deck_.settings, deck_.name);
    note_idle_values();
    check_rules(ranks);
    if (!problems_.empty()) report();
    return std::move(deck_);
  }

 private:
  // Defaults depend on the family, so it is looked up first; a bad value is reported by take().
  Family family() const {
    Settings settings;
    const Setting& row = *find_setting("model.family");
    for (const ScannedDeck* source : {&file_, &line_})
      for (const Assignment& a : source->assignments)
        if (a.name == row.name) set_value(row, settings, a.value);
    return settings.model.family;
  }

  void take(const ScannedDeck& source) {
    std::map<std::string, Place> places;
    for (const Assignment& a : source.assignments) {
      const Setting* row = find_setting(a.name);
      if (row == nullptr) {
        add(a.place, fmt::format("unknown key {}; the nearest valid key is {}", a.name,
                                 nearest_setting(a.name)));
        continue;
      }
      const auto [first, fresh] = places.emplace(a.name, a.place);
      if (!fresh) {
        add(a.place, fmt::format("{} was given already, at {}", a.name, first->second.text));
        failed_.insert(a.name);  // which of the two counts?
        continue;
      }
      place_[a.name] = a.place;
      deck_.given.insert(a.name);
      const std::string wrong = set_value(*row, deck_.settings, a.value);
      if (wrong.empty()) {
        failed_.erase(a.name);
      } else {
        failed_.insert(a.name);
        const std::string unit = row->unit.empty() ? "" : " (" + row->unit + ")";
        add(a.place, fmt::format("{} = `{}`: {}{}", a.name, a.value.substr(0, 60), wrong, unit));
      }
    }
  }

  void find_missing() {
    for (const Setting& row : settings_table()) {
      if (!row.required || deck_.given.contains(row.name)) continue;
      failed_.insert(row.name);
      add({deck_.name}, fmt::format("{} is missing: {}", row.name, row.help));
    }
  }

  // Values that a user gave and that do nothing; a resolved deck, full of defaults, is quiet.
  void note_idle_values() {
    const Settings defaults = default_settings(deck_.settings.model.family);
    for (const std::string& name : deck_.given) {
      const Setting& row = *find_setting(name);
      const std::string value = value_text(row, deck_.settings);
      if (has_effect(row, deck_.settings) || value == value_text(row, defaults)) continue;
      deck_.notes.push_back(
          fmt::format("{} = {} has no effect without {}", name, value, row.only_with));
    }
  }

  // A rule over a value that could not be read says nothing.
  void check_rules(int ranks) {
    for (const BrokenRule& rule : broken_rules(deck_.settings, ranks)) {
      const auto known = [&](const std::string& key) { return !failed_.contains(key); };
      if (!std::all_of(rule.keys.begin(), rule.keys.end(), known)) continue;
      Place place = {deck_.name};
      for (auto key = rule.keys.rbegin(); key != rule.keys.rend(); ++key)
        if (place_.contains(*key)) place = place_.at(*key);
      add(place, rule.text);
    }
  }

  void add(Place place, std::string text) {
    problems_.push_back({std::move(place), std::move(text)});
  }

  [[noreturn]] void report() {
    std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
      return a.place.line < b.place.line;
    });
    std::string lines;
    for (size_t i = 0; i < std::min(problems_.size(), kMostShown); ++i)
      lines += fmt::format("\n  {}: {}", problems_[i].place.text, problems_[i].text);
    if (problems_.size() > kMostShown)
      lines += fmt::format("\n  and {} more", problems_.size() - kMostShown);
    fail(ExitCode::bad_config,
         "{}: {} error{}, nothing was started. doc/input.md lists every key.{}", deck_.name,
         problems_.size(), problems_.size() == 1 ? "" : "s", lines);
  }

  ScannedDeck file_, line_;
  Deck deck_;
  std::vector<Problem> problems_;
  std::map<std::string, Place> place_;  // of the value that counts
  std::set<std::string> failed_;        // keys without a usable value
};

}  // namespace

std::string read_deck_text(const std::string& path) {
  std::error_code status;
  require(std::filesystem::exists(path, status), ExitCode::no_input,
          "{}: no such deck. Decks that come with the program are in inputs/", path);
  require(!std::filesystem::is_directory(path, status), ExitCode::no_input,
          "{}: is a directory; name a deck file in it", path);
  std::ifstream file(path, std::ios::binary);
  require(file.good(), ExitCode::no_input, "{}: cannot be opened: {}", path, std::strerror(errno));
  std::string text(kMostDeckBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  require(!file.bad(), ExitCode::no_input, "{}: cannot be read: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

Deck parse_deck(std::string_view text, const std::string& name,
                std::span<const std::string> overrides, int ranks) {
  require(text.size() <= kMostDeckBytes, ExitCode::bad_config,
          "{}: longer than {} bytes; this is not a deck", name, kMostDeckBytes);
  return DeckReader(text, name, overrides).read(ranks);
}

}  // namespace trireme
