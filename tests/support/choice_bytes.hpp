// Evaluation files of llm.c for tests, word by word.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/data/choice_file.hpp"

namespace trireme::test {

inline std::string choice_bytes(const std::vector<ChoiceExample>& examples) {
  std::string body;
  size_t longest = 0;
  for (size_t n = 0; n < examples.size(); ++n) {
    const ChoiceExample& e = examples[n];
    std::vector<uint16_t> words = {65535, 0, static_cast<uint16_t>(n),
                                   static_cast<uint16_t>(e.label),
                                   static_cast<uint16_t>(e.completions.size())};
    const auto add = [&](const std::vector<int32_t>& tokens) {
      words.push_back(static_cast<uint16_t>(tokens.size()));
      for (const int32_t token : tokens) words.push_back(static_cast<uint16_t>(token));
    };
    add(e.context);
    for (const auto& completion : e.completions) add(completion);
    words[1] = static_cast<uint16_t>(2 * words.size());
    longest = std::max(longest, 2 * words.size());
    body.append(reinterpret_cast<const char*>(words.data()), 2 * words.size());
  }
  std::vector<int32_t> header(256);
  header[0] = 20240522, header[1] = 1;
  header[2] = static_cast<int32_t>(examples.size());
  header[3] = static_cast<int32_t>(longest);
  return std::string(reinterpret_cast<const char*>(header.data()), 1024) + body;
}

}  // namespace trireme::test
