// JSON lines among what a program printed.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::test {

inline std::vector<nlohmann::json> json_lines(const std::string& output) {
  std::vector<nlohmann::json> result;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("{")) result.push_back(nlohmann::json::parse(line));
  return result;
}

}  // namespace trireme::test
