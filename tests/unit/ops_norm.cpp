// LayerNorm and RMSNorm with the fused residual add: references in f64, finite differences,
// recomputation and thread counts to the bit.
#include <gtest/gtest.h>

#include "support/finite_difference.hpp"
#include "support/host_tensor.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

using test::expect_close;
using test::HostTensor;
using test::random_values;

struct Case {
  NormKind kind;
  int64_t n, h;
  bool has_delta, has_bias;
};

const Case kCases[] = {
    {NormKind::layer_norm, 7, 37, true, true},    {NormKind::layer_norm, 7, 37, false, true},
    {NormKind::layer_norm, 1, 1300, true, false}, {NormKind::rms_norm, 7, 37, true, false},
    {NormKind::rms_norm, 3, 1031, false, false},
};

struct Inputs {
  std::vector<float> residual, delta, delta_bias, gain, bias;
};

Inputs make_inputs(const Case& c) {
  const size_t count = static_cast<size_t>(c.n * c.h);
  const size_t width = static_cast<size_t>(c.h);
  Inputs in{random_values(count, 1, 2), random_values(count, 2), random_values(width, 3),
            random_values(width, 4), random_values(width, 5)};
  for (float& x : in.residual) x += 0.7f;
  return in;
}

// normalized of rows x, in f64.
std::vector<float> reference(const Case& c, const std::vector<float>& x,
                             const std::vector<float>& gain, const std::vector<float>& bias) {
  std::vector<float> result(x.size());
  const size_t h = static_cast<size_t>(c.h);
  for (size_t r = 0; r < x.size() / h; ++r) {
    double mean = 0;
    double square = 0;
    if (c.kind == NormKind::layer_norm)
      for (size_t i = 0; i < h; ++i) mean += x[r * h + i] / static_cast<double>(h);
    for (size_t i = 0; i < h; ++i) square += std::pow(x[r * h + i] - mean, 2);
    const double inverse = 1 / std::sqrt(square / static_cast<double>(h) + 1e-5);
    for (size_t i = 0; i < h; ++i)
      result[r * h + i] = static_cast<float>((x[r * h + i] - mean) * inverse * gain[i] +
                                             (c.has_bias ? bias[i] : 0));
  }
  return result;
}

class Norm : public testing::TestWithParam<std::tuple<Case, DType>> {
 protected:
  Norm()
      : c_(std::get<0>(GetParam())),
        type_(std::get<1>(GetParam())),
        in_(make_inputs(c_)),
        residual_({c_.n, c_.h}, in_.residual, type_),
        delta_({c_.n, c_.h}, in_.delta, type_),
        delta_bias_({c_.h}, in_.delta_bias, type_),
        gain_({c_.h}, in_.gain, type_),
        bias_({c_.h}, in_.bias, type_),
        out_({c_.n, c_.h}, type_),
        normalized_({c_.n, c_.h}, type_) {}

  NormForward call() {
    NormForward call{.kind = c_.kind,
                     .residual_in = residual_.view(),
                     .residual_out = out_.view(),
                     .gain = gain_.view(),
                     .normalized = normalized_.view()};
    if (c_.has_bias) call.bias = bias_.view();
    if (c_.has_delta) {
      call.delta = delta_.view();
      call.delta_bias = delta_bias_.view();
    }
    return call;
  }
  // The residual sum, rounded as stored.
  std::vector<float> sum() {
    std::vector<float> x = residual_.values();
    const std::vector<float> delta = delta_.values();
    const std::vector<float> bias = delta_bias_.values();
    if (c_.has_delta)
      for (size_t i = 0; i < x.size(); ++i) x[i] += delta[i] + bias[i % static_cast<size_t>(c_.h)];
    return HostTensor({c_.n, c_.h}, x, type_).values();
  }

  Case c_;
  DType type_;
  Inputs in_;
  HostTensor residual_, delta_, delta_bias_, gain_, bias_, out_, normalized_;
  Device device_{DeviceOptions{}};
};

TEST_P(Norm, MatchesReference) {
  norm_forward(device_.compute(), call());
  const std::vector<float> x = sum();
  expect_close(out_.values(), x, 1e-7, "residual_out");
  expect_close(normalized_.values(), reference(c_, x, gain_.values(), bias_.values()),
               type_ == DType::bf16 ? 4e-3 : 2e-6, "normalized");
}

// The stash keeps residual_out only; recomputing from it must give the bits of the first pass.
TEST_P(Norm, RecomputesTheSameBits) {
  norm_forward(device_.compute(), call());
  HostTensor again({c_.n, c_.h}, type_);
  NormForward recompute = call();
  recompute.residual_in = out_.view();
  recompute.delta = recompute.delta_bias = recompute.residual_out = TensorView();
  recompute.normalized = again.view();
  norm_forward(device_.compute(), recompute);
  EXPECT_EQ(again.bytes(), normalized_.bytes());
}

TEST_P(Norm, InPlaceAndByParts) {
  norm_forward(device_.compute(), call());
  const std::vector<std::byte> expected = normalized_.bytes();
  const std::vector<std::byte> expected_sum = out_.bytes();
  HostTensor in_place({c_.n, c_.h}, in_.residual, type_);
  HostTensor parts({c_.n, c_.h}, type_);
  const int64_t middle = c_.n / 2;
  for (const auto& [first, last] : {std::pair{int64_t{0}, middle}, std::pair{middle, c_.n}}) {
    NormForward part = call();
    part.residual_in = part.residual_out = in_place.view().rows(first, last);
    if (c_.has_delta) part.delta = delta_.view().rows(first, last);
    part.normalized = parts.view().rows(first, last);
    norm_forward(device_.compute(), part);
  }
  EXPECT_EQ(parts.bytes(), expected);
  EXPECT_EQ(in_place.bytes(), expected_sum);
}

INSTANTIATE_TEST_SUITE_P(All, Norm,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(DType::f32, DType::bf16)));

class NormGradient : public testing::TestWithParam<NormKind> {
 protected:
  static constexpr int64_t kRows = 7, kWidth = 37;
  Device device_{DeviceOptions{}};
};

TEST_P(NormGradient, FiniteDifferences) {
  const Shape shape{kRows, kWidth};
  const bool has_bias = GetParam() == NormKind::layer_norm;
  HostTensor x(shape, random_values(259, 11, 2));
  HostTensor gain({kWidth}, random_values(37, 12));
  HostTensor bias({kWidth}, random_values(37, 13));
  HostTensor weights(shape, random_values(259, 14));
  HostTensor normalized(shape, DType::f32);
  HostTensor d_x = HostTensor::zeros(shape);
  HostTensor d_gain = HostTensor::zeros({kWidth});
  HostTensor d_bias = HostTensor::zeros({kWidth});
  NormForward forward{.kind = GetParam(),
                      .residual_in = x.view(),
                      .gain = gain.view(),
                      .normalized = normalized.view()};
  if (has_bias) forward.bias = bias.view();
  NormBackward backward{.kind = GetParam(),
                        .x = x.view(),
                        .gain = gain.view(),
                        .d_normalized = weights.view(),
                        .d_residual = d_x.view(),
                        .d_gain = d_gain.view()};
  if (has_bias) backward.d_bias = d_bias.view();
  norm_backward(device_.compute(), backward);
  const auto loss = [&] {
    norm_forward(device_.compute(), forward);
    return test::weighted_sum(normalized.f32(), weights.f32());
  };
  test::expect_gradient(x.f32(), d_x.f32(), loss, {.samples = 259, .name = "x"});
  test::expect_gradient(gain.f32(), d_gain.f32(), loss, {.name = "gain"});
  if (has_bias) test::expect_gradient(bias.f32(), d_bias.f32(), loss, {.name = "bias"});
}

// Gradients are added to what is there, and the parameter gradients may be left out.
TEST_P(NormGradient, AddsToTheGradients) {
  const Shape shape{kRows, kWidth};
  HostTensor x(shape, random_values(259, 21, 2));
  HostTensor gain({kWidth}, random_values(37, 22));
  HostTensor d(shape, random_values(259, 23));
  HostTensor once = HostTensor::zeros(shape);
  HostTensor gain_once = HostTensor::zeros({kWidth});
  HostTensor bias_once = HostTensor::zeros({kWidth});
  NormBackward backward{.kind = GetParam(),
                        .x = x.view(),
                        .gain = gain.view(),
                        .d_normalized = d.view(),
                        .d_residual = once.view(),
                        .d_gain = gain_once.view(),
                        .d_bias = bias_once.view()};
  norm_backward(device_.compute(), backward);
  const std::vector<float> start = random_values(259, 24);
  const std::vector<float> gain_start = random_values(37, 25);
  HostTensor more(shape, start);
  HostTensor gain_more({kWidth}, gain_start);
  backward.d_residual = more.view();
  backward.d_gain = gain_more.view();
  backward.d_bias = TensorView();
  norm_backward(device_.compute(), backward);
  for (size_t i = 0; i < start.size(); ++i)
    EXPECT_NEAR(more.values()[i], start[i] + once.values()[i], 2e-6);
  for (size_t i = 0; i < gain_start.size(); ++i)
    EXPECT_NEAR(gain_more.values()[i], gain_start[i] + gain_once.values()[i], 2e-6);
}

TEST_P(NormGradient, Bf16IsCloseToF32) {
  const Shape shape{kRows, kWidth};
  const std::vector<float> xs = HostTensor(shape, random_values(259, 31, 2), DType::bf16).values();
  const std::vector<float> ds = HostTensor(shape, random_values(259, 32), DType::bf16).values();
  const std::vector<float> gains =
      HostTensor({kWidth}, random_values(37, 33), DType::bf16).values();
  std::vector<std::vector<float>> results[2];
  for (const DType type : {DType::f32, DType::bf16}) {
    HostTensor x(shape, xs, type);
    HostTensor d(shape, ds, type);
    HostTensor gain({kWidth}, gains, type);
    HostTensor d_x = HostTensor::zeros(shape, type);
    HostTensor d_gain = HostTensor::zeros({kWidth});
    HostTensor d_bias = HostTensor::zeros({kWidth});
    norm_backward(device_.compute(), {.kind = GetParam(),
                                      .x = x.view(),
                                      .gain = gain.view(),
                                      .d_normalized = d.view(),
                                      .d_residual = d_x.view(),
                                      .d_gain = d_gain.view(),
                                      .d_bias = d_bias.view()});
    results[type == DType::bf16] = {d_x.values(), d_gain.values(), d_bias.values()};
  }
  expect_close(results[1][0], results[0][0], 4e-3, "d_x");
  expect_close(results[1][1], results[0][1], 1e-6, "d_gain");  // f32 whatever the storage
  expect_close(results[1][2], results[0][2], 1e-6, "d_bias");
}

TEST_P(NormGradient, DoesNotDependOnTheThreads) {
  const int64_t rows = 403;
  const int64_t width = 67;
  HostTensor x({rows, width}, random_values(403 * 67, 41));
  HostTensor d({rows, width}, random_values(403 * 67, 42));
  HostTensor gain({width}, random_values(67, 43));
  std::vector<std::vector<std::byte>> results;
  for (const int threads : {1, 2, 3, 5}) {
    Device device(DeviceOptions{.threads = threads});
    HostTensor d_x = HostTensor::zeros({rows, width});
    HostTensor d_gain = HostTensor::zeros({width});
    HostTensor d_bias = HostTensor::zeros({width});
    norm_backward(device.compute(), {.kind = GetParam(),
                                     .x = x.view(),
                                     .gain = gain.view(),
                                     .d_normalized = d.view(),
                                     .d_residual = d_x.view(),
                                     .d_gain = d_gain.view(),
                                     .d_bias = d_bias.view()});
    std::vector<std::byte> all = d_x.bytes();
    all.insert(all.end(), d_gain.bytes().begin(), d_gain.bytes().end());
    all.insert(all.end(), d_bias.bytes().begin(), d_bias.bytes().end());
    results.push_back(all);
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST_P(NormGradient, SumsOverManyRows) {
  const int64_t rows = 403;
  const size_t width = 67;
  HostTensor x({rows, 67}, random_values(403 * width, 51));
  HostTensor d({rows, 67}, random_values(403 * width, 52));
  HostTensor ones({67}, std::vector<float>(width, 1.0f));
  HostTensor xhat({rows, 67}, DType::f32);
  HostTensor d_x = HostTensor::zeros({rows, 67});
  HostTensor d_gain = HostTensor::zeros({67});
  HostTensor d_bias = HostTensor::zeros({67});
  norm_forward(device_.compute(), {.kind = GetParam(),
                                   .residual_in = x.view(),
                                   .gain = ones.view(),
                                   .normalized = xhat.view()});
  norm_backward(device_.compute(), {.kind = GetParam(),
                                    .x = x.view(),
                                    .gain = ones.view(),
                                    .d_normalized = d.view(),
                                    .d_residual = d_x.view(),
                                    .d_gain = d_gain.view(),
                                    .d_bias = d_bias.view()});
  for (size_t i = 0; i < width; ++i) {
    double gain_sum = 0;
    double bias_sum = 0;
    for (size_t at = i; at < 403 * width; at += width) {
      gain_sum += static_cast<double>(d.f32()[at]) * static_cast<double>(xhat.f32()[at]);
      bias_sum += d.f32()[at];
    }
    ASSERT_NEAR(d_gain.f32()[i], gain_sum, 2e-5) << i;
    ASSERT_NEAR(d_bias.f32()[i], bias_sum, 2e-5) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, NormGradient,
                         testing::Values(NormKind::layer_norm, NormKind::rms_norm));

TEST(NormErrors, WrongViewsAreRefused) {
  Device device{DeviceOptions{}};
  HostTensor x({3, 5}, random_values(15, 1));
  HostTensor gain({5}, random_values(5, 2));
  HostTensor half({5}, random_values(5, 2), DType::bf16);
  HostTensor out({3, 5}, DType::f32);
  const NormForward good{.residual_in = x.view(), .gain = gain.view(), .normalized = out.view()};
  EXPECT_NO_THROW(norm_forward(device.compute(), good));
  NormForward bad = good;
  bad.gain = half.view();
  EXPECT_THROW(norm_forward(device.compute(), bad), Error);
  bad = good;
  bad.normalized = out.view().rows(0, 2);
  EXPECT_THROW(norm_forward(device.compute(), bad), Error);
  bad = good;
  bad.delta = x.view();  // nowhere to put the sum
  EXPECT_THROW(norm_forward(device.compute(), bad), Error);
  bad = good;
  bad.kind = NormKind::rms_norm;
  bad.bias = gain.view();
  EXPECT_THROW(norm_forward(device.compute(), bad), Error);
}

}  // namespace
}  // namespace trireme
