// Bench cases: AdamW over a flat buffer, squared norm of a gradient.
#include <array>
#include <cmath>

#include "app/bench_case.hpp"

namespace trireme::app {
namespace {

constexpr int64_t kSegments = 12;

// Consecutive segments of unequal length, every second one without decay.
std::vector<AdamWSegment> segments_of(int64_t count) {
  std::vector<AdamWSegment> segments;
  int64_t first = 0;
  for (int64_t i = 1; i <= kSegments; ++i) {
    const int64_t end =
        i == kSegments ? count : count * i * (i + 1) / (kSegments * (kSegments + 1));
    segments.push_back({first, end - first, i % 2 == 0 ? 0.1f : 0.0f});
    first = end;
  }
  return segments;
}

// The flat values around the ends of the segments.
struct FlatRange {
  int64_t first = 0, last = 0;
  float weight_decay = 0;
};
std::vector<FlatRange> sampled_ranges(const std::vector<AdamWSegment>& segments) {
  std::vector<FlatRange> ranges;
  for (const AdamWSegment& s : segments) {
    const int64_t width = std::min<int64_t>(s.count, 200), end = s.first + s.count;
    ranges.push_back({s.first, s.first + width, s.weight_decay});
    ranges.push_back({end - width, end, s.weight_decay});
  }
  return ranges;
}

using Flat = std::array<std::vector<float>, 5>;  // gradient, master, m, v, value
Flat read_range(Stream& stream, const AdamW& call, const FlatRange& range) {
  const auto of = [&](const TensorView& view) {
    return read(stream, view.range(range.first, range.last));
  };
  return {of(call.gradient), of(call.master), of(call.m), of(call.v), of(call.value)};
}

void check_range(const AdamW& call, const FlatRange& range, const Flat& old, const Flat& now) {
  const StepState state = bench_step_state();
  const double b1 = static_cast<double>(call.beta1), b2 = static_cast<double>(call.beta2);
  const std::string what = "adamw";
  for (size_t i = 0; i < old[0].size(); ++i) {
    const double g = static_cast<double>(old[0][i]) * state.gradient_scale, start = old[1][i];
    const double m = b1 * old[2][i] + (1 - b1) * g;
    const double v = b2 * old[3][i] + (1 - b2) * g * g;
    const double step = m / state.correction1 / (std::sqrt(v / state.correction2) + call.epsilon);
    const double change = state.learning_rate * (step + range.weight_decay * start);
    const Place place{what, range.first + static_cast<int64_t>(i), 0};
    // Tight enough that a missing decay (1e-5 of the value) shows.
    const Expected master{.value = start - change,
                          .slack = 2.5e-7 * std::abs(start) + 1e-5 * std::abs(change)};
    const double error = std::abs(now[1][i] - master.value);
    require(error <= master.slack, ExitCode::internal,
            "adamw is wrong on this machine: master weight {} is {} instead of {}", place.row,
            now[1][i], master.value);
    require_near(place, DType::f32, now[2][i], expected(m, std::abs(old[2][i]) + std::abs(g)));
    require_near(place, DType::f32, now[3][i], expected(v, v));
    require_near(
        place, call.value.dtype, now[4][i],
        {.value = call.value.dtype == DType::bf16 ? from_bf16(to_bf16(now[1][i])) : now[1][i],
         .exact = true});
  }
}

void check_adamw(Stream& stream, const AdamW& call, const std::vector<AdamWSegment>& segments) {
  const std::vector<FlatRange> ranges = sampled_ranges(segments);
  std::vector<Flat> before;
  for (const FlatRange& range : ranges) before.push_back(read_range(stream, call, range));
  adamw(stream, call);
  for (const TensorView& view : {call.master, call.m, call.v, call.value})
    require_written(stream, view.as({1, view.elements()}), "adamw");
  for (size_t i = 0; i < ranges.size(); ++i)
    check_range(call, ranges[i], before[i], read_range(stream, call, ranges[i]));
}

OpCase adamw_case(BenchData& d, const BenchSizes& s) {
  const int64_t count = s.optimizer_elements;
  const auto segments = std::make_shared<std::vector<AdamWSegment>>(segments_of(count));
  AdamW call{.gradient = d.random({count}, DType::f32), .master = d.random({count}, DType::f32)};
  call.m = d.random({count}, DType::f32);
  call.v = d.random({count}, DType::f32, 0, 1);
  call.value = d.poisoned({count}, s.type);
  call.segments = *segments;
  call.device_segments =
      reinterpret_cast<const AdamWSegment*>(d.bytes(std::as_bytes(std::span(*segments))).data);
  call.state = d.state(bench_step_state());
  Stream* stream = &d.stream();
  // Gradient read, master and both moments read and written, value written.
  return {.size = fmt::format("{}", count),
          .bytes = static_cast<double>(count) * (28 + s.element()),
          .call = [=] { adamw(*stream, call); },
          .check = [=] { check_adamw(*stream, call, *segments); }};
}

void check_squared_norm(Stream& stream, TensorView x, StepState* state) {
  double sum = get_step(stream, state).sums[2];
  for_each_row(stream, x.as({x.shape[0] / 1024, 1024}), [&](int64_t, std::span<const float> row) {
    for (const float value : row) sum += static_cast<double>(value) * value;
  });
  add_squared_norm(stream, x, state);
  const std::string what = "squared_norm";
  require_near({what, 0, 0}, DType::f32, get_step(stream, state).sums[2], {.value = sum});
}

OpCase squared_norm_case(BenchData& d, const BenchSizes& s) {
  const TensorView x = d.random({s.optimizer_elements}, DType::f32);
  StepState* state = d.state(bench_step_state());
  Stream* stream = &d.stream();
  return {.size = fmt::format("{}", s.optimizer_elements),
          .bytes = static_cast<double>(x.bytes()),
          .call = [=] { add_squared_norm(*stream, x, state); },
          .check = [=] { check_squared_norm(*stream, x, state); }};
}

}  // namespace

std::vector<OpRow> optimizer_rows(const BenchSizes& s) {
  return {{"adamw", [s](BenchData& d) { return adamw_case(d, s); }},
          {"squared_norm", [s](BenchData& d) { return squared_norm_case(d, s); }}};
}

}  // namespace trireme::app
