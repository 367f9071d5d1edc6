// One-line log with rank and level. Built in main and passed down: nothing global.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

enum class LogLevel : uint8_t { error, warning, info, debug };

// Writes whole lines to one stream with one write each. Only rank 0 prints info and warnings;
// errors print on any rank, with the rank in front. A broken pipe never ends the run.
class Log {
 public:
  explicit Log(int rank, LogLevel level = LogLevel::info, std::FILE* out = stderr)
      : rank_(rank), level_(level), out_(out) {}
  int rank() const { return rank_; }

  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) const {
    write(LogLevel::info, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) const {
    write(LogLevel::warning, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) const {
    write(LogLevel::error, fmt::format(text, std::forward<Args>(args)...));
  }

  void write(LogLevel level, std::string_view line) const;

 private:
  int rank_;
  LogLevel level_;
  std::FILE* out_;
};

}  // namespace trireme
