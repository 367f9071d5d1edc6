// Lines of a deck with their places. Boost.Program_options reads keys and values; it keeps no
// positions and stops at the first malformed line, so a scan of ours goes first: it lists malformed
// lines and unknown sections, blanks them, and remembers the line of every assignment. Private to
// config.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct Place {
  std::string text;           // "inputs/tiny.ini:12", "command line (--grid.tp=2)"
  int line = kBehindTheDeck;  // for the order of messages
  static constexpr int kBehindTheDeck = 1 << 30;
};

struct Problem {
  Place place;
  std::string text;
};

struct Assignment {
  std::string name;   // "grid.tp"
  std::string value;  // trimmed, without comment
  Place place;
};

struct ScannedDeck {
  std::vector<Assignment> assignments;  // in order, repeats included
  std::vector<Problem> problems;
};

ScannedDeck scan_deck(std::string_view text, const std::string& name);
// Arguments of the form --section.key=value.
ScannedDeck scan_overrides(std::span<const std::string> arguments);

}  // namespace trireme
