#include "app/arguments.hpp"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"

namespace trireme::app {

Arguments::Arguments(std::span<const std::string> words, const std::vector<std::string>& known,
                     const std::string& usage)
    : usage_(usage) {
  std::vector<std::string>* values = &positions_;
  for (const std::string& word : words) {
    if (!word.starts_with("--")) {
      values->push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    require(std::ranges::find(known, name) != known.end(), ExitCode::usage,
            "unknown option --{}\nusage: {}", name, usage);
    require(!values_.contains(name), ExitCode::usage, "--{} is given twice\nusage: {}", name,
            usage);
    values = &values_[name];
    if (equals == std::string::npos) continue;
    values->push_back(word.substr(equals + 1));
    values = &positions_;
  }
}

std::vector<std::string> Arguments::all(const std::string& option) const {
  const auto found = values_.find(option);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::string Arguments::one(const std::string& option) const {
  const std::vector<std::string> values = all(option);
  require(values.size() == 1, ExitCode::usage, "--{} needs one value\nusage: {}", option, usage_);
  return values[0];
}

std::optional<std::string> Arguments::optional(const std::string& option) const {
  if (!has(option)) return std::nullopt;
  return one(option);
}

int64_t Arguments::number(const std::string& option, int64_t least) const {
  const std::string text = one(option);
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(fault == std::errc{} && end == text.data() + text.size() && value >= least,
          ExitCode::usage, "--{} = {}: a whole number from {} on is needed\nusage: {}", option,
          text, least, usage_);
  return value;
}

int64_t Arguments::number(const std::string& option, int64_t least, int64_t otherwise) const {
  return has(option) ? number(option, least) : otherwise;
}

}  // namespace trireme::app
