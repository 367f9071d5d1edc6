// AdamW and the squared gradient norm: one pass over flat buffers at memory speed.
#include <cmath>
#include <vector>

#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace {

constexpr int64_t kBlock = 1 << 15;

// inverse1 and inverse2 are 1 / correction: one division an element instead of three.
struct AdamWFactors {
  float scale, beta1, beta2, rest1, rest2, inverse1, inverse2, epsilon, rate, decay;
};

template <class Storage>
void adamw_block(const AdamWFactors& f, int64_t count, const float* __restrict gradient,
                 float* __restrict master, float* __restrict m, float* __restrict v,
                 typename Storage::Element* __restrict value) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.scale;
    const float m1 = f.beta1 * m[i] + f.rest1 * g;
    const float v1 = f.beta2 * v[i] + f.rest2 * (g * g);
    const float step = m1 * f.inverse1 / (std::sqrt(v1 * f.inverse2) + f.epsilon);
    const float w = master[i] - f.rate * (step + f.decay * master[i]);
    m[i] = m1;
    v[i] = v1;
    master[i] = w;
    value[i] = Storage::store(w);
  }
}

void check_adamw(const AdamW& call) {
  const Shape flat{call.gradient.elements()};
  require(call.state != nullptr, ExitCode::internal, "adamw: no step state");
  require_view(call.gradient, flat, DType::f32, "adamw: gradient");
  require_view(call.master, flat, DType::f32, "adamw: master");
  require_view(call.m, flat, DType::f32, "adamw: m");
  require_view(call.v, flat, DType::f32, "adamw: v");
  require_view(call.value, flat, call.value.dtype, "adamw: value");
  for (const AdamWSegment& s : call.segments)
    require(s.first >= 0 && s.count >= 0 && s.first <= flat[0] - s.count, ExitCode::internal,
            "adamw: segment of {} elements at {} in a buffer of {}", s.count, s.first, flat[0]);
}

double squared_sum(const float* x, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const double value = x[i];
    sum += value * value;
  }
  return sum;
}

}  // namespace

void adamw(Stream&, const AdamW& call) {
  check_adamw(call);
  const StepState& state = *call.state;
  if (state.skip != 0 || call.gradient.empty()) return;
  with_storage(call.value.dtype, "adamw", [&]<class Storage>(Storage) {
    const float* gradient = call.gradient.ptr<float>();
    float* master = call.master.ptr<float>();
    float* m = call.m.ptr<float>();
    float* v = call.v.ptr<float>();
    auto* value = call.value.ptr<typename Storage::Element>();
    for (const AdamWSegment& s : call.segments) {
      const AdamWFactors factors{state.gradient_scale,
                                 call.beta1,
                                 call.beta2,
                                 1.0f - call.beta1,
                                 1.0f - call.beta2,
                                 1.0f / state.correction1,
                                 1.0f / state.correction2,
                                 call.epsilon,
                                 state.learning_rate,
                                 s.weight_decay};
      for_blocks(s.count, kBlock, [&](int64_t first, int64_t last) {
        const int64_t at = s.first + first;
        adamw_block<Storage>(factors, last - first, gradient + at, master + at, m + at, v + at,
                             value + at);
      });
    }
  });
}

void add_squared_norm(Stream&, TensorView x, StepState* state) {
  require_view(x, x.shape, DType::f32, "add_squared_norm: x");
  if (x.empty()) return;
  const float* values = x.ptr<float>();
  std::vector<double> partial(static_cast<size_t>(ceil_div(x.elements(), kBlock)));
  for_blocks(x.elements(), kBlock, [&](int64_t first, int64_t last) {
    partial[static_cast<size_t>(first / kBlock)] = squared_sum(values + first, last - first);
  });
  double total = 0;
  for (double p : partial) total += p;
  state->sums[2] = static_cast<float>(state->sums[2] + total);
}

}  // namespace trireme::inline TRIREME_BACKEND
