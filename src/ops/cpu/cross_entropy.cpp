// Cross-entropy over a vocabulary split by columns, in three calls around two all-reduces.
#include <cmath>
#include <limits>

#include "ops/cpu/fast_math.hpp"
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "ops/cross_entropy_check.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace {

template <class Storage>
typename Storage::Element* logits_row(const CrossEntropy& call, int64_t r) {
  return reinterpret_cast<typename Storage::Element*>(call.logits.data) + r * call.logits.stride;
}

// Column of the target of row r, or -1 where it is not a valid column held here.
int64_t target_column(const CrossEntropy& call, int64_t r) {
  const int64_t column = call.targets.ptr<int32_t>()[r] - call.first_row;
  return column >= 0 && column < call.valid ? column : -1;
}

// Sum of exp(x - top): f32 within a tile, f64 over tiles.
template <class Storage>
float exponential_sum(const typename Storage::Element* x, int64_t count, float top) {
  double total = 0;
  for_tiles(count, [&](int64_t first, int64_t width) {
    const auto* tile = x + first;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) sum += fast_exp(Storage::load(tile[i]) - top);
    total += sum;
  });
  return static_cast<float>(total);
}

// logits = (softmax - onehot) where counted, else 0; padding is 0.
template <class Storage>
void gradient_row(const CrossEntropy& call, int64_t r) {
  auto* x = logits_row<Storage>(call, r);
  const int64_t filled = call.mask.ptr<float>()[r] != 0 ? call.valid : 0;
  const int64_t column = target_column(call, r);
  const float top = call.row_max.ptr<float>()[r];
  const float inverse = 1.0f / call.sums.ptr<float>()[r];
  // The target's gradient is softmax - 1, rounded once.
  const float at_target = column >= 0 ? fast_exp(Storage::load(x[column]) - top) * inverse : 0.0f;
#pragma omp simd
  for (int64_t i = 0; i < filled; ++i)
    x[i] = Storage::store(fast_exp(Storage::load(x[i]) - top) * inverse);
  if (column >= 0 && column < filled) x[column] = Storage::store(at_target - 1.0f);
  std::fill(x + filled, x + call.logits.cols, typename Storage::Element{});
}

// The loss of every row, and its sum in row order.
void finish_loss(const CrossEntropy& call) {
  const int64_t n = call.logits.rows;
  const float* mask = call.mask.ptr<float>();
  const float* row_max = call.row_max.ptr<float>();
  const float* sums = call.sums.ptr<float>();
  float* loss = call.loss.ptr<float>();
  double total = 0;
  double counted = 0;
  for (int64_t r = 0; r < n; ++r) {
    loss[r] = mask[r] != 0 ? std::log(sums[r]) + row_max[r] - sums[n + r] : 0.0f;
    total += loss[r];
    counted += mask[r] != 0 ? 1 : 0;
  }
  if (!call.count) return;
  call.state->sums[0] = static_cast<float>(call.state->sums[0] + total);
  call.state->sums[1] = static_cast<float>(call.state->sums[1] + counted);
}

}  // namespace

void cross_entropy_max(Stream&, const CrossEntropy& call) {
  check_cross_entropy(call, "cross_entropy_max");
  float* row_max = call.row_max.ptr<float>();
  with_storage(call.logits.dtype, "cross_entropy_max", [&]<class Storage>(Storage) {
    for_rows(call.logits.rows, call.valid, [&](int64_t r) {
      const auto* x = logits_row<Storage>(call, r);
      float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
      for (int64_t i = 0; i < call.valid; ++i) top = std::max(top, Storage::load(x[i]));
      row_max[r] = top;
    });
  });
}

void cross_entropy_sums(Stream&, const CrossEntropy& call) {
  check_cross_entropy(call, "cross_entropy_sums");
  const int64_t n = call.logits.rows;
  const float* row_max = call.row_max.ptr<float>();
  float* sums = call.sums.ptr<float>();
  with_storage(call.logits.dtype, "cross_entropy_sums", [&]<class Storage>(Storage) {
    for_rows(n, call.valid, [&](int64_t r) {
      const auto* x = logits_row<Storage>(call, r);
      const int64_t column = target_column(call, r);
      sums[r] = exponential_sum<Storage>(x, call.valid, row_max[r]);
      sums[n + r] = column >= 0 ? Storage::load(x[column]) : 0.0f;
    });
  });
}

void cross_entropy_finish(Stream&, const CrossEntropy& call) {
  check_cross_entropy(call, "cross_entropy_finish");
  finish_loss(call);
  if (!call.write_gradient) return;
  with_storage(call.logits.dtype, "cross_entropy_finish", [&]<class Storage>(Storage) {
    for_rows(call.logits.rows, call.logits.cols,
             [&](int64_t r) { gradient_row<Storage>(call, r); });
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
