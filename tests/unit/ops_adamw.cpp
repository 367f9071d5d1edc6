// The step state, the gradient norm and AdamW, against values worked out in f64.
#include <gtest/gtest.h>

#include <limits>

#include "support/finite_difference.hpp"
#include "support/host_tensor.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::expect_close;
using test::HostTensor;
using test::random_values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Optimizer : public testing::Test {
 protected:
  StepState finished(float squares, float tokens, float clip) {
    StepState values{};
    values.clip = clip;
    StepState state;
    set_step(device_.compute(), &state, values);
    state.sums[1] = tokens;
    state.sums[2] = squares;
    finish_norm(device_.compute(), &state);
    return get_step(device_.compute(), &state);
  }
  Device device_{DeviceOptions{}};
};

TEST_F(Optimizer, SetStepKeepsTheValuesAndClearsTheResults) {
  StepState values{};
  values.seed = 3;
  values.step = 4;
  values.first_sample = 5;
  values.learning_rate = 6;
  values.training = 1;
  values.sums[0] = values.sums[1] = values.sums[2] = values.sums[3] = 7;
  values.norm = values.gradient_scale = 7;
  values.skip = 1;
  StepState state;
  set_step(device_.compute(), &state, values);
  const StepState got = get_step(device_.compute(), &state);
  EXPECT_EQ(got.seed, 3u);
  EXPECT_EQ(got.step, 4);
  EXPECT_EQ(got.first_sample, 5);
  EXPECT_EQ(got.learning_rate, 6);
  EXPECT_EQ(got.training, 1);
  for (const float sum : got.sums) EXPECT_EQ(sum, 0);
  EXPECT_EQ(got.norm, 0);
  EXPECT_EQ(got.gradient_scale, 0);
  EXPECT_EQ(got.skip, 0);
}

TEST_F(Optimizer, NormAndClipFactor) {
  StepState state = finished(900, 10, 1);  // raw norm 30, of the mean 3
  EXPECT_FLOAT_EQ(state.norm, 3);
  EXPECT_FLOAT_EQ(state.gradient_scale, static_cast<float>(1 / 3.000001 / 10));
  EXPECT_EQ(state.skip, 0);
  state = finished(900, 10, 4);  // below the clip
  EXPECT_FLOAT_EQ(state.gradient_scale, 0.1f);
  state = finished(900, 10, 0);  // no clipping
  EXPECT_FLOAT_EQ(state.gradient_scale, 0.1f);
}

TEST_F(Optimizer, ZeroNormAndNoTokens) {
  StepState state = finished(0, 10, 1);
  EXPECT_EQ(state.norm, 0);
  EXPECT_FLOAT_EQ(state.gradient_scale, 0.1f);
  EXPECT_EQ(state.skip, 0);
  state = finished(0, 0, 1);
  EXPECT_EQ(state.norm, 0);
  EXPECT_EQ(state.gradient_scale, 0);
  EXPECT_EQ(state.skip, 0);
}

TEST_F(Optimizer, NonFiniteNormSkips) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float clip : {0.0f, 1.0f}) {
    EXPECT_EQ(finished(kInfinity, 10, clip).skip, 1);
    EXPECT_EQ(finished(nan, 10, clip).skip, 1);
    EXPECT_EQ(finished(nan, 0, clip).skip, 1);
    EXPECT_EQ(finished(900, nan, clip).skip, 1);
  }
}

TEST_F(Optimizer, SquaredNorm) {
  const size_t count = 100003;
  HostTensor x({static_cast<int64_t>(count)}, random_values(count, 1, 3));
  double expected = 0.5;
  for (const float v : x.f32()) expected += static_cast<double>(v) * v;
  StepState state{};
  state.sums[2] = 0.5f;
  add_squared_norm(device_.compute(), x.view(), &state);
  EXPECT_FLOAT_EQ(state.sums[2], static_cast<float>(expected));
  EXPECT_EQ(state.sums[0], 0);
  EXPECT_EQ(state.sums[1], 0);
}

TEST_F(Optimizer, SquaredNormDoesNotDependOnTheThreads) {
  const size_t count = 400009;
  HostTensor x({static_cast<int64_t>(count)}, random_values(count, 2));
  std::vector<float> results;
  for (const int threads : {1, 2, 3, 5}) {
    Device device(DeviceOptions{.threads = threads});
    StepState state{};
    add_squared_norm(device.compute(), x.view(), &state);
    results.push_back(state.sums[2]);
  }
  for (const float result : results) EXPECT_EQ(result, results[0]);
}

// Tiny squares next to a large one are lost by f32 sums: 1 + 2^20 times 2^-24 is 1.0625.
TEST_F(Optimizer, SquaredNormIsAccurate) {
  std::vector<float> values((1 << 20) + 1, 0x1p-12f);
  values[0] = 1;
  HostTensor x({(1 << 20) + 1}, values);
  StepState state{};
  add_squared_norm(device_.compute(), x.view(), &state);
  EXPECT_EQ(state.sums[2], 1.0625f);
}

TEST_F(Optimizer, SquaredNormSeesBrokenGradients) {
  for (const float broken : {kInfinity, std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    std::vector<float> values(1001, 1.0f);
    values[777] = broken;
    HostTensor x({1001}, values);
    StepState state{};
    add_squared_norm(device_.compute(), x.view(), &state);
    EXPECT_FALSE(std::isfinite(state.sums[2])) << broken;
  }
}

// Buffers of one AdamW call.
struct Buffers {
  explicit Buffers(size_t count, DType type, uint32_t seed = 0)
      : gradient({static_cast<int64_t>(count)}, random_values(count, seed + 1)),
        master({static_cast<int64_t>(count)}, random_values(count, seed + 2)),
        m(HostTensor::zeros({static_cast<int64_t>(count)})),
        v(HostTensor::zeros({static_cast<int64_t>(count)})),
        value({static_cast<int64_t>(count)}, type) {}
  AdamW call(std::span<const AdamWSegment> segments, const StepState& state) {
    return {.gradient = gradient.view(),
            .master = master.view(),
            .m = m.view(),
            .v = v.view(),
            .value = value.view(),
            .segments = segments,
            .beta1 = 0.9f,
            .beta2 = 0.95f,
            .epsilon = 1e-8f,
            .state = &state};
  }
  HostTensor gradient, master, m, v, value;
};

// State of update `update` (from 1) with a gradient that is a sum over 8 tokens.
StepState update_state(int update) {
  StepState state{};
  state.learning_rate = 0.01f;
  state.gradient_scale = 0.125f;
  state.correction1 = static_cast<float>(1 - std::pow(0.9, update));
  state.correction2 = static_cast<float>(1 - std::pow(0.95, update));
  return state;
}

// Worked out by hand: master 1, gradient 2 then -1 then 0.5 (of the mean), decay 0.1.
TEST_F(Optimizer, ThreeStepsByHand) {
  Buffers b(1, DType::f32);
  b.master.f32()[0] = 1;
  const AdamWSegment segment{0, 1, 0.1f};
  const double gradients[] = {2, -1, 0.5};
  const double masters[] = {0.98900000005, 0.985327305586, 0.980875162021};
  const double ms[] = {0.2, 0.08, 0.122};
  const double vs[] = {0.2, 0.24, 0.2405};
  for (int i = 0; i < 3; ++i) {
    b.gradient.f32()[0] = static_cast<float>(8 * gradients[i]);
    const StepState state = update_state(i + 1);
    adamw(device_.compute(), b.call({&segment, 1}, state));
    EXPECT_NEAR(b.master.f32()[0], masters[i], 1e-7);
    EXPECT_NEAR(b.m.f32()[0], ms[i], 1e-7);
    EXPECT_NEAR(b.v.f32()[0], vs[i], 1e-7);
    EXPECT_EQ(b.value.f32()[0], b.master.f32()[0]);
  }
}

TEST_F(Optimizer, MatchesReferenceWithSegments) {
  const size_t count = 40009;
  for (const DType type : {DType::f32, DType::bf16}) {
    Buffers b(count, type);
    const std::vector<AdamWSegment> segments = {
        {0, 33000, 0.1f}, {33000, 37, 0}, {33040, 6969, 0.2f}};
    std::vector<double> master(count), m(count), v(count);
    for (size_t i = 0; i < count; ++i) master[i] = b.master.f32()[i];
    const std::vector<float> start = b.master.values();
    for (int update = 1; update <= 3; ++update) {
      const StepState state = update_state(update);
      adamw(device_.compute(), b.call(segments, state));
      for (const AdamWSegment& s : segments)
        for (size_t i = static_cast<size_t>(s.first); i < static_cast<size_t>(s.first + s.count);
             ++i) {
          const double g = b.gradient.f32()[i] / 8.0;
          m[i] = 0.9 * m[i] + 0.1 * g;
          v[i] = 0.95 * v[i] + 0.05 * g * g;
          const double step = m[i] / (1 - std::pow(0.9, update)) /
                              (std::sqrt(v[i] / (1 - std::pow(0.95, update))) + 1e-8);
          master[i] -= 0.01 * (step + static_cast<double>(s.weight_decay) * master[i]);
        }
    }
    const std::vector<float> values = b.value.values();
    for (size_t i = 0; i < count; ++i) {
      if (i >= 33037 && i < 33040) {  // no segment
        ASSERT_EQ(b.master.f32()[i], start[i]);
        ASSERT_TRUE(std::isnan(values[i]));
        continue;
      }
      ASSERT_NEAR(b.master.f32()[i], master[i], 5e-7) << i;
      ASSERT_NEAR(b.m.f32()[i], m[i], 1e-7) << i;
      const float stored =
          type == DType::bf16 ? from_bf16(to_bf16(b.master.f32()[i])) : b.master.f32()[i];
      ASSERT_EQ(values[i], stored) << i;
    }
  }
}

// A shard of the buffers gives the same bits as the whole: any cut, so any vector remainder.
TEST_F(Optimizer, ShardsGiveTheSameBits) {
  const int64_t count = 331;
  const StepState state = update_state(2);
  Buffers whole(count, DType::bf16);
  std::ranges::copy(random_values(count, 9), whole.m.f32().begin());
  std::ranges::fill(whole.v.f32(), 0.25f);
  const Buffers start = whole;
  const AdamWSegment all{0, count, 0.1f};
  adamw(device_.compute(), whole.call({&all, 1}, state));
  for (int64_t cut = 0; cut <= 70; ++cut) {
    Buffers parts = start;
    const AdamWSegment pieces[] = {{0, cut, 0.1f}, {cut, count - cut, 0.1f}};
    adamw(device_.compute(), parts.call(pieces, state));
    ASSERT_EQ(parts.master.bytes(), whole.master.bytes()) << cut;
    ASSERT_EQ(parts.m.bytes(), whole.m.bytes()) << cut;
    ASSERT_EQ(parts.v.bytes(), whole.v.bytes()) << cut;
    ASSERT_EQ(parts.value.bytes(), whole.value.bytes()) << cut;
  }
}

TEST_F(Optimizer, SkipChangesNothing) {
  Buffers b(101, DType::bf16);
  const Buffers start = b;
  StepState state = update_state(1);
  state.skip = 1;
  const AdamWSegment all{0, 101, 0.1f};
  adamw(device_.compute(), b.call({&all, 1}, state));
  EXPECT_EQ(b.master.bytes(), start.master.bytes());
  EXPECT_EQ(b.m.bytes(), start.m.bytes());
  EXPECT_EQ(b.v.bytes(), start.v.bytes());
  EXPECT_EQ(b.value.bytes(), start.value.bytes());
}

TEST_F(Optimizer, WrongCallsAreRefused) {
  Buffers b(101, DType::f32);
  const StepState state = update_state(1);
  const AdamWSegment beyond{100, 2, 0};
  EXPECT_THROW(adamw(device_.compute(), b.call({&beyond, 1}, state)), Error);
  const AdamWSegment all{0, 101, 0};
  AdamW call = b.call({&all, 1}, state);
  call.m = call.m.range(0, 100);
  EXPECT_THROW(adamw(device_.compute(), call), Error);
  call = b.call({&all, 1}, state);
  call.state = nullptr;
  EXPECT_THROW(adamw(device_.compute(), call), Error);
  HostTensor half({3}, random_values(3, 1), DType::bf16);
  StepState norm{};
  EXPECT_THROW(add_squared_norm(device_.compute(), half.view(), &norm), Error);
}

}  // namespace
}  // namespace trireme
