// Runs a shell command and gives its exit status, for tests that need a tool to make a file.
#pragma once

#include <cstdlib>
#include <string>

namespace trireme::test {

inline int run_shell(const std::string& command) {
  return std::system((command + " 2> /dev/null").c_str());
}

}  // namespace trireme::test
