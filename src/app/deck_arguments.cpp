#include "app/deck_arguments.hpp"

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

Deck read_deck_together(const DeckArguments& arguments, const Communicator& world) {
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
  return parse_deck(world.broadcast(text, 0), arguments.path, arguments.overrides, world.size());
}

}  // namespace trireme::app
