// The end of the job from variables and squeue: see the header.
#include "trireme/train/time_limit.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace trireme {
namespace {

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen((command + " 2> /dev/null").c_str(), "r");
  if (pipe == nullptr) return text;
  char piece[256];
  while (const size_t got = std::fread(piece, 1, sizeof(piece), pipe)) text.append(piece, got);
  ::pclose(pipe);
  return text;
}

}  // namespace

std::optional<int64_t> slurm_seconds(std::string_view text) {
  text = trimmed(text);
  int64_t days = 0;
  const size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const auto value = number(text.substr(0, dash));
    if (!value) return std::nullopt;
    days = *value;
    text = text.substr(dash + 1);
  }
  std::vector<int64_t> parts;
  for (;;) {
    const size_t colon = text.find(':');
    const auto value = number(text.substr(0, colon));
    if (!value) return std::nullopt;
    parts.push_back(*value);
    if (colon == std::string_view::npos) break;
    text = text.substr(colon + 1);
  }
  if (parts.size() > 3 || (dash != std::string_view::npos && parts.size() != 3))
    return std::nullopt;
  int64_t seconds = 0;
  for (const int64_t part : parts) seconds = 60 * seconds + part;
  return 86400 * days + seconds;
}

TimeLimit::TimeLimit(std::function<const char*(const char*)> get,
                     std::function<std::string(const std::string&)> ask)
    : get_(std::move(get)), ask_(std::move(ask)) {
  for (const char* name : {"TRIREME_DEADLINE", "SLURM_JOB_END_TIME"}) {
    const char* text = get_(name);
    if (text == nullptr) continue;
    end_ = number(text);
    if (!end_ || *end_ == 0) continue;
    source_ = name;
    return;
  }
  end_.reset();
  ask_slurm();
}

TimeLimit TimeLimit::of_this_job() {
  return {[](const char* name) { return std::getenv(name); }, output_of};
}

bool TimeLimit::ask_slurm() {
  const char* job = get_("SLURM_JOB_ID");
  if (job == nullptr || !number(job)) return false;
  const auto left = slurm_seconds(ask_(std::string("timeout 10 squeue -h -j ") + job + " -o %L"));
  if (!left) return false;
  end_ = static_cast<int64_t>(std::time(nullptr)) + *left;
  source_ = "squeue";
  return true;
}

void TimeLimit::ask_again() {
  ask_slurm();
}

}  // namespace trireme
