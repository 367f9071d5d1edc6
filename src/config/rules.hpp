// Collecting broken rules. Private to the config folder.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/config/layout.hpp"

namespace trireme {

class Rules {
 public:
  // `ok` must hold; else the formatted text is kept with the keys that it is about, the main one
  // first.
  template <class... Args>
  void check(bool ok, std::vector<std::string> keys, fmt::format_string<Args...> text,
             Args&&... args) {
    if (!ok) broken_.push_back({std::move(keys), fmt::format(text, std::forward<Args>(args)...)});
  }
  bool any() const { return !broken_.empty(); }
  void append(std::vector<BrokenRule> other) {
    for (BrokenRule& rule : other) broken_.push_back(std::move(rule));
  }
  std::vector<BrokenRule> broken() && { return std::move(broken_); }

 private:
  std::vector<BrokenRule> broken_;
};

// Whether b divides a. Also true for b = 0, so that one missing size does not break every rule.
inline bool divides(int64_t b, int64_t a) {
  return b == 0 || a % b == 0;
}

// Rules of the process grid; `ranks` 0 is not known. With known ranks the last broken one proposes
// layouts.
void layout_rules(const Settings& settings, int ranks, Rules& rules);

}  // namespace trireme
