#include "trireme/train/learning_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>
#include <sstream>

#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

using Kind = ScheduleSettings::Kind;
using WsdKind = ScheduleSettings::WsdKind;

double half_cosine(double ratio) {
  return 0.5 * (1 + std::cos(std::numbers::pi * ratio));
}

// Share of maximum - minimum at `ratio` in (0, 1] of the last phase of wsd.
double wsd_share(WsdKind kind, double ratio) {
  switch (kind) {
    case WsdKind::linear:
      return 1 - ratio;
    case WsdKind::cosine:
      return half_cosine(ratio);
    case WsdKind::exponential:
      return 2 * std::exp2(-ratio) - 1;
    case WsdKind::minus_sqrt:
      return 1 - std::sqrt(ratio);
  }
  return 0;
}

// Share of maximum - minimum at n samples, where warmup <= n <= decay and n > 0 or decay > 0.
double share_at(const LearningRate& s, double n) {
  const double warmup = static_cast<double>(s.warmup), end = static_cast<double>(s.decay);
  if (s.kind == Kind::wsd) {
    const double anneal = end - static_cast<double>(s.wsd_decay);
    if (n <= anneal) return 1;
    return wsd_share(s.wsd_kind, (n - anneal) / static_cast<double>(s.wsd_decay));
  }
  const double ratio = (n - warmup) / (end - warmup);
  return s.kind == Kind::linear ? 1 - ratio : half_cosine(ratio);
}

constexpr std::array<const char*, 5> kKinds = {"constant", "linear", "cosine", "wsd",
                                               "inverse_square_root"};
constexpr std::array<const char*, 4> kWsdKinds = {"linear", "cosine", "exponential", "minus_sqrt"};

using Lines = std::map<std::string, std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(" = ");
    if (at != std::string::npos) lines[line.substr(0, at)] = line.substr(at + 3);
  }
  return lines;
}

template <class Number>
bool read_number(const Lines& lines, const char* name, Number& value) {
  const auto found = lines.find(name);
  if (found == lines.end()) return true;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

template <class Kind, size_t N>
bool read_name(const Lines& lines, const char* name, const std::array<const char*, N>& names,
               Kind& value) {
  const auto found = lines.find(name);
  if (found == lines.end()) return true;
  const auto place = std::find(names.begin(), names.end(), found->second);
  value = static_cast<Kind>(place - names.begin());
  return place != names.end();
}

}  // namespace

LearningRate learning_rate_of(const Settings& settings) {
  const ScheduleSettings& s = settings.schedule;
  const int64_t batch = settings.batch.global;
  return {.kind = s.kind,
          .wsd_kind = s.wsd_kind,
          .initial = s.initial,
          .maximum = settings.optimizer.learning_rate,
          .minimum = s.minimum,
          .warmup = checked_mul(s.warmup, batch),
          .decay = checked_mul(s.decay, batch),
          .wsd_decay = checked_mul(s.wsd_decay, batch)};
}

double learning_rate_at(const LearningRate& s, int64_t samples) {
  const double n = static_cast<double>(samples);
  if (s.warmup > 0 && samples <= s.warmup)
    return s.initial + (s.maximum - s.initial) * n / static_cast<double>(s.warmup);
  if (s.kind == Kind::constant) return s.maximum;
  if (samples > s.decay) return s.minimum;
  if (s.kind == Kind::inverse_square_root) {
    const double warmup = static_cast<double>(std::max<int64_t>(s.warmup, 1));
    return std::max(s.minimum, s.maximum * std::sqrt(warmup) / std::sqrt(std::max(n, 1.0)));
  }
  if (s.decay <= s.warmup) return s.maximum;
  return s.minimum + std::clamp(share_at(s, n), 0.0, 1.0) * (s.maximum - s.minimum);
}

std::string schedule_text(const LearningRate& s) {
  std::string text =
      fmt::format("kind = {}\nmaximum = {}\n", kKinds[static_cast<size_t>(s.kind)], s.maximum);
  if (s.warmup > 0) text += fmt::format("warmup = {}\ninitial = {}\n", s.warmup, s.initial);
  if (s.kind != Kind::constant)
    text += fmt::format("decay = {}\nminimum = {}\n", s.decay, s.minimum);
  if (s.kind == Kind::wsd)
    text += fmt::format("wsd_decay = {}\nwsd_kind = {}\n", s.wsd_decay,
                        kWsdKinds[static_cast<size_t>(s.wsd_kind)]);
  return text;
}

std::optional<LearningRate> parse_schedule(const std::string& text) {
  const Lines lines = lines_of(text);
  LearningRate s;
  const bool read =
      lines.contains("kind") && read_name(lines, "kind", kKinds, s.kind) &&
      read_name(lines, "wsd_kind", kWsdKinds, s.wsd_kind) &&
      read_number(lines, "maximum", s.maximum) && read_number(lines, "initial", s.initial) &&
      read_number(lines, "minimum", s.minimum) && read_number(lines, "warmup", s.warmup) &&
      read_number(lines, "decay", s.decay) && read_number(lines, "wsd_decay", s.wsd_decay);
  if (!read || schedule_text(s) != text) return std::nullopt;
  return s;
}

std::vector<std::string> schedule_differences(const std::string& stored, const std::string& now) {
  const Lines before = lines_of(stored), after = lines_of(now);
  Lines all = before;
  all.insert(after.begin(), after.end());
  const auto value = [](const Lines& lines, const std::string& name) {
    const auto found = lines.find(name);
    return found == lines.end() ? std::string("none") : found->second;
  };
  std::vector<std::string> texts;
  for (const auto& [name, ignored] : all) {
    const bool counted = name == "warmup" || name == "decay" || name == "wsd_decay";
    if (value(before, name) != value(after, name))
      texts.push_back(fmt::format("{}: {} in the checkpoint, {} in the deck{}", name,
                                  value(before, name), value(after, name),
                                  counted ? " (sequences)" : ""));
  }
  return texts;
}

}  // namespace trireme
