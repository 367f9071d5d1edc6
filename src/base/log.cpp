#include "trireme/base/log.hpp"

namespace trireme {

void Log::write(LogLevel level, std::string_view line) const {
  if (level > level_ || (rank_ != 0 && level != LogLevel::error)) return;
  std::string text;
  if (level == LogLevel::error) text = fmt::format("[rank {}] error: {}\n", rank_, line);
  if (level == LogLevel::warning) text = fmt::format("warning: {}\n", line);
  if (level >= LogLevel::info) text = fmt::format("{}\n", line);
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

}  // namespace trireme
