// Command lines of subcommands: long options with values, and positions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::app {

// `--name value...`: an option takes the words up to the next `--`; `--name=value` takes one.
class Arguments {
 public:
  // Throws Error(usage) for an option that is not in `known`, or given twice. `usage` is shown with
  // it.
  Arguments(std::span<const std::string> words, const std::vector<std::string>& known,
            const std::string& usage);

  const std::vector<std::string>& positions() const { return positions_; }
  bool has(const std::string& option) const { return values_.contains(option); }
  // All values; empty where the option was not given.
  std::vector<std::string> all(const std::string& option) const;
  // Exactly one value. Throws Error(usage) otherwise.
  std::string one(const std::string& option) const;
  std::optional<std::string> optional(const std::string& option) const;
  // A whole number of at least `least`. Throws Error(usage).
  int64_t number(const std::string& option, int64_t least) const;
  int64_t number(const std::string& option, int64_t least, int64_t otherwise) const;

 private:
  std::vector<std::string> positions_;
  std::map<std::string, std::vector<std::string>> values_;
  std::string usage_;
};

}  // namespace trireme::app
