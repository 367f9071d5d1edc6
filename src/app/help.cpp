// trireme help [SECTION[.KEY]]
#include <fmt/format.h>

#include "app/commands.hpp"
#include "trireme/config/reference.hpp"

namespace trireme::app {

int help(std::span<const std::string> arguments, const std::string& usage) {
  fmt::print("{}", arguments.empty() ? usage : settings_help(arguments[0]));
  return 0;
}

}  // namespace trireme::app
