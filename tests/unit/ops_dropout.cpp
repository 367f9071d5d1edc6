// Dropout: masks are pure functions of their address, so splitting rows changes nothing and every
// part of the address matters.
#include <gtest/gtest.h>

#include "support/finite_difference.hpp"
#include "support/host_tensor.hpp"
#include "trireme/ops/dropout_mask.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::expect_close;
using test::HostTensor;
using test::random_values;

constexpr int64_t kSequence = 13;
constexpr int64_t kRows = 3 * kSequence;
constexpr int64_t kWidth = 37;

class DropoutMasks : public testing::Test {
 protected:
  DropoutMasks() {
    StepState values{};
    values.seed = 1234;
    values.step = 5;
    values.first_sample = 96;
    values.training = 1;
    set_step(device_.compute(), &state_, values);
  }
  DropoutSite site(float probability = 0.25f) {
    return {.probability = probability, .site = 17, .sequence = kSequence, .state = &state_};
  }
  // The factors of a site, as the dropout of ones.
  std::vector<float> factors(const DropoutSite& site, int64_t rows = kRows, int64_t h = kWidth) {
    const size_t count = static_cast<size_t>(rows * h);
    HostTensor ones({rows, h}, std::vector<float>(count, 1.0f));
    HostTensor out({rows, h}, DType::f32);
    dropout(device_.compute(), {.x = ones.view(), .out = out.view(), .site = site});
    return out.values();
  }

  Device device_{DeviceOptions{}};
  StepState state_{};
};

// Against the arithmetic of the header, element by element.
TEST_F(DropoutMasks, FollowsTheAddress) {
  DropoutSite place = site();
  place.row_offset = 7;
  place.sample_offset = 2;
  const int64_t h = 1301;  // several tiles
  const std::vector<float> got = factors(place, 9, h);
  const uint64_t key = dropout_key(1234, 5, 17);
  for (int64_t r = 0; r < 9; ++r) {
    const uint32_t position = static_cast<uint32_t>((7 + r) % kSequence);
    const int64_t sample = 96 + 2 + (7 + r) / kSequence;
    for (int64_t i = 0; i < h; ++i) {
      const PhiloxWords w = dropout_words(key, static_cast<uint32_t>(i / 4), position, sample);
      const uint32_t words[4] = {w.x, w.y, w.z, w.w};
      const float expected = words[i % 4] < 0x40000000u ? 0.0f : 1 / 0.75f;
      ASSERT_EQ(got[static_cast<size_t>(r * h + i)], expected) << r << ", " << i;
    }
  }
}

TEST_F(DropoutMasks, KeepsTheRightFraction) {
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const std::vector<float> got = factors(site(p), 1000, 101);
    double kept = 0;
    double sum = 0;
    for (const float f : got) {
      kept += f != 0;
      sum += f;
    }
    const double n = static_cast<double>(got.size());
    const double q = p;
    EXPECT_NEAR(kept / n, 1 - q, 4 * std::sqrt(q * (1 - q) / n));
    EXPECT_NEAR(sum / n, 1, 4 * std::sqrt(q / (1 - q) / n));
  }
}

TEST_F(DropoutMasks, RowsSplitAsInSequenceParallel) {
  const std::vector<float> whole = factors(site());
  std::vector<float> parts;
  for (const auto& [first, last] : {std::pair{0, 20}, std::pair{20, 39}}) {
    DropoutSite part = site();
    part.row_offset = first;
    const std::vector<float> piece = factors(part, last - first);
    parts.insert(parts.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(parts, whole);
}

TEST_F(DropoutMasks, MicroBatchesSplitTheGlobalBatch) {
  const std::vector<float> whole = factors(site());
  DropoutSite second = site();
  second.sample_offset = 1;
  const std::vector<float> piece = factors(second, 2 * kSequence);
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + kSequence * kWidth));
}

TEST_F(DropoutMasks, EveryPartOfTheAddressMatters) {
  const std::vector<float> base = factors(site());
  const auto differs = [&](const std::vector<float>& other, const char* what) {
    size_t different = 0;
    for (size_t i = 0; i < base.size(); ++i) different += base[i] != other[i];
    const double expected = 2 * 0.25 * 0.75 * static_cast<double>(base.size());
    EXPECT_NEAR(static_cast<double>(different), expected, 6 * std::sqrt(expected)) << what;
  };
  DropoutSite other = site();
  other.site = 18;
  differs(factors(other), "site");
  other = site();
  other.sample_offset = 3;
  differs(factors(other), "sample");
  state_.step = 6;
  differs(factors(site()), "step");
  state_.step = 5;
  state_.seed = 1235;
  differs(factors(site()), "seed");
  state_.seed = 1234;
  state_.first_sample += 1;
  differs(factors(site()), "first sample");
  state_.first_sample -= 1;
  EXPECT_EQ(factors(site()), base);
}

TEST_F(DropoutMasks, ResidualAddAndNormShareTheMask) {
  const size_t count = kRows * kWidth;
  for (const DType type : {DType::f32, DType::bf16}) {
    HostTensor residual({kRows, kWidth}, random_values(count, 1), type);
    HostTensor delta({kRows, kWidth}, random_values(count, 2), type);
    HostTensor bias({kWidth}, random_values(kWidth, 3), type);
    HostTensor out({kRows, kWidth}, type);
    residual_add(device_.compute(), {.residual = residual.view(),
                                     .delta = delta.view(),
                                     .delta_bias = bias.view(),
                                     .out = out.view(),
                                     .dropout = site()});
    const std::vector<float> mask = factors(site());
    std::vector<float> expected = residual.values();
    for (size_t i = 0; i < count; ++i)
      expected[i] += mask[i] * (delta.values()[i] + bias.values()[i % kWidth]);
    expect_close(out.values(), expected, type == DType::bf16 ? 4e-3 : 1e-6, "residual_add");

    HostTensor fused({kRows, kWidth}, type);
    HostTensor normalized({kRows, kWidth}, type);
    norm_forward(device_.compute(), {.residual_in = residual.view(),
                                     .delta = delta.view(),
                                     .delta_bias = bias.view(),
                                     .residual_out = fused.view(),
                                     .gain = bias.view(),
                                     .normalized = normalized.view(),
                                     .dropout = site()});
    EXPECT_EQ(fused.bytes(), out.bytes());
  }
}

TEST_F(DropoutMasks, OffWhenNotTrainingOrZero) {
  const std::vector<float> ones(kRows * kWidth, 1.0f);
  EXPECT_EQ(factors(site(0)), ones);
  EXPECT_EQ(factors(DropoutSite{}), ones);  // no state is needed
  state_.training = 0;
  EXPECT_EQ(factors(site()), ones);
}

TEST_F(DropoutMasks, InPlace) {
  const std::vector<float> values = random_values(kRows * kWidth, 4);
  HostTensor d({kRows, kWidth}, values);
  HostTensor out({kRows, kWidth}, DType::f32);
  dropout(device_.compute(), {.x = d.view(), .out = out.view(), .site = site()});
  dropout(device_.compute(), {.x = d.view(), .out = d.view(), .site = site()});
  EXPECT_EQ(d.bytes(), out.bytes());
  HostTensor residual({kRows, kWidth}, values);
  residual_add(device_.compute(),
               {.residual = residual.view(), .delta = out.view(), .out = residual.view()});
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(residual.values()[i], values[i] + out.values()[i]);
}

TEST_F(DropoutMasks, RefusesSitesThatCannotBeDrawn) {
  EXPECT_THROW(factors(site(1.0f)), Error);
  EXPECT_THROW(factors(site(-0.1f)), Error);
  DropoutSite no_state = site();
  no_state.state = nullptr;
  EXPECT_THROW(factors(no_state), Error);
}

}  // namespace
}  // namespace trireme
