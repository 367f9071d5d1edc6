#include "app/deck_arguments.hpp"

#include <optional>

namespace trireme::app {

DeckArguments deck_arguments(std::span<const std::string> words, const std::string& usage) {
  DeckArguments result;
  for (const std::string& word : words) {
    if (word.starts_with("--")) {
      result.overrides.push_back(word);
      continue;
    }
    require(result.path.empty(), ExitCode::usage, "two decks: {} and {}\nusage: {}", result.path,
            word, usage);
    result.path = word;
  }
  require(!result.path.empty(), ExitCode::usage, "a deck is missing\nusage: {}", usage);
  return result;
}

namespace {

// What a deck says whatever the ranks; nothing where it is wrong in itself.
std::optional<Settings> settings_of(const std::string& text, const DeckArguments& arguments) {
  try {
    return parse_deck(text, arguments.path, arguments.overrides).settings;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

Deck read_deck_together(const DeckArguments& arguments, const Communicator& world,
                        const std::function<void(const Settings&)>& before_layout) {
  std::string text, fault;
  auto code = ExitCode::no_input;
  if (world.rank() == 0) {
    try {
      text = read_deck_text(arguments.path);
    } catch (const Error& e) {
      fault = e.what();
      code = e.code();
    }
  }
  world.require_all(fault.empty(), code, fault);
  text = world.broadcast(text, 0);
  if (before_layout)
    if (const auto settings = settings_of(text, arguments)) before_layout(*settings);
  return parse_deck(text, arguments.path, arguments.overrides, world.size());
}

}  // namespace trireme::app
