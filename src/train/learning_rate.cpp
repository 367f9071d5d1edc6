#include "trireme/train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

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

}  // namespace trireme
