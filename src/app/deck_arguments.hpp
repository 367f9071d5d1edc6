// A deck and its overrides from a command line: DECK --section.key=value ...
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/config/deck.hpp"

namespace trireme::app {

struct DeckArguments {
  std::string path;
  std::vector<std::string> overrides;  // "--section.key=value"
};
// Throws Error(usage) unless there is one deck and the rest are overrides.
DeckArguments deck_arguments(std::span<const std::string> words, const std::string& usage);

// Collective: rank 0 reads the file, all ranks parse the same text. Throws on all ranks.
// `before_layout` sees the settings before they are checked against the number of ranks.
Deck read_deck_together(const DeckArguments& arguments, const Communicator& world,
                        const std::function<void(const Settings&)>& before_layout = {});

}  // namespace trireme::app
