// Rotary position embedding, half rotation (Su et al., "RoFormer", 2021, in the layout of Llama).
#include <cmath>
#include <vector>

#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "ops/cpu/workspace.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

// Cosines and sines of one position. The angle is an f32 product and the library reduces it
// exactly, so that large positions are as good as small ones.
void turn_of(float position, const float* frequencies, int64_t half, float sign, float* cosines,
             float* sines) {
  for (int64_t i = 0; i < half; ++i) {
    const float angle = position * frequencies[i];
    cosines[i] = std::cos(angle);
    sines[i] = sign * std::sin(angle);
  }
}

template <class Storage>
void rotate_head(typename Storage::Element* __restrict a, typename Storage::Element* __restrict b,
                 const float* cosines, const float* sines, int64_t half) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float x = Storage::load(a[i]);
    const float y = Storage::load(b[i]);
    a[i] = Storage::store(x * cosines[i] - y * sines[i]);
    b[i] = Storage::store(y * cosines[i] + x * sines[i]);
  }
}

void check(const Rope& call) {
  require(call.head_size % 2 == 0 && call.head_size <= kLargestHead && call.head_size > 0,
          ExitCode::internal, "rope: head size {}; use an even one up to {}", call.head_size,
          kLargestHead);
  require(call.x.cols == call.heads * call.head_size, ExitCode::internal,
          "rope: {} columns for {} heads of {}", call.x.cols, call.heads, call.head_size);
  require_view(call.positions, {call.x.rows}, DType::i32, "rope: positions");
  require_view(call.frequencies, {call.head_size / 2}, DType::f32, "rope: frequencies");
}

}  // namespace

void rope(Stream&, const Rope& call) {
  check(call);
  const int64_t half = call.head_size / 2;
  const int32_t* positions = call.positions.ptr<int32_t>();
  const float* frequencies = call.frequencies.ptr<float>();
  const float sign = call.inverse ? -1.0f : 1.0f;
  with_storage(call.x.dtype, "rope", [&](auto storage) {
    using Storage = decltype(storage);
    auto* x = reinterpret_cast<typename Storage::Element*>(call.x.data);
    for_rows(call.x.rows, call.x.cols, [&](int64_t r) {
      alignas(64) float cosines[kLargestHead / 2];
      alignas(64) float sines[kLargestHead / 2];
      turn_of(static_cast<float>(positions[r]), frequencies, half, sign, cosines, sines);
      for (int64_t h = 0; h < call.heads; ++h) {
        auto* head = x + r * call.x.stride + h * call.head_size;
        rotate_head<Storage>(head, head + half, cosines, sines, half);
      }
    });
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
