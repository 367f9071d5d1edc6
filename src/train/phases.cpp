#include "trireme/train/phases.hpp"

#include <algorithm>

#include "trireme/train/watchdog.hpp"

namespace trireme {

Phases::Scope::~Scope() {
  if (phases_.wait_) phases_.wait_();
  phases_.lines_[line_].seconds += seconds_since(start_);
  phases_.lines_[line_].count += 1;
}

Phases::Scope Phases::enter(std::string_view name) {
  if (watchdog_ != nullptr) watchdog_->phase(name);
  auto same = [&](const Line& line) { return line.name == name; };
  auto found = std::find_if(lines_.begin(), lines_.end(), same);
  if (found == lines_.end()) found = lines_.insert(found, Line{std::string(name), 0, 0});
  return Scope(*this, static_cast<size_t>(found - lines_.begin()));
}

double Phases::seconds(std::string_view name) const {
  for (const Line& line : lines_)
    if (line.name == name) return line.seconds;
  return 0;
}

void Phases::reset() {
  for (Line& line : lines_) line = {line.name, 0, 0};
}

}  // namespace trireme
