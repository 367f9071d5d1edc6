// Help and the reference page, made from the table of settings.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Help on "section.key", on a section, or on everything where `topic` is empty. An unknown topic
// gives the nearest name.
std::string settings_help(std::string_view topic);

// The text of doc/input.md.
std::string input_reference_markdown();

}  // namespace trireme
