// Generation: new keys and values to the cache, and attention of one token a sequence over it.
#include <omp.h>

#include <cmath>
#include <cstring>

#include "ops/cpu/attention_tile.hpp"
#include "ops/decode_check.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int64_t kKeys = 512;  // scores that are held at a time

// The softmax so far of one query: the output is `sum` / `total`.
struct Running {
  float largest = kMinusInfinity, total = 0;
  alignas(64) float sum[kLargestHead] = {};
};

template <class Storage>
float dot(const typename Storage::Element* a, const float* b, int64_t size) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; ++i) sum += Storage::load(a[i]) * b[i];
  return sum;
}

// Takes keys [first, first + count) of a head in.
template <class Storage>
void take_keys(const AttentionDecode& call, const float* query, int64_t first, int64_t count,
               int64_t kv_head, Running& r) {
  const int64_t size = call.head_size;
  float score[kKeys];
  float largest = r.largest;
  for (int64_t j = 0; j < count; ++j) {
    score[j] =
        call.scale * dot<Storage>(head_at<Storage>(call.k, first + j, kv_head, size), query, size);
    largest = score[j] > largest ? score[j] : largest;
  }
  const float decay = std::exp(r.largest - largest);
  r.largest = largest;
  r.total *= decay;
  for (int64_t i = 0; i < size; ++i) r.sum[i] *= decay;
  for (int64_t j = 0; j < count; ++j) {
    const float p = std::exp(score[j] - largest);
    const auto* value = head_at<Storage>(call.v, first + j, kv_head, size);
    r.total += p;
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) r.sum[i] += p * Storage::load(value[i]);
  }
}

template <class Storage>
void decode_head(const AttentionDecode& call, int64_t token, int64_t head) {
  const int64_t size = call.head_size, row = call.rows.ptr<int32_t>()[token];
  const int64_t start = row / call.capacity * call.capacity;
  const int64_t kv_head = head / (call.heads / call.kv_heads);
  alignas(64) float query[kLargestHead];
  const auto* q = head_at<Storage>(call.q, token, head, size);
  for (int64_t i = 0; i < size; ++i) query[i] = Storage::load(q[i]);
  Running running;
  for (int64_t first = start; first <= row; first += kKeys)
    take_keys<Storage>(call, query, first, std::min(kKeys, row + 1 - first), kv_head, running);
  auto* out = head_at<Storage>(call.output, token, head, size);
  for (int64_t i = 0; i < size; ++i) out[i] = Storage::store(running.sum[i] / running.total);
}

// Throws Error(internal) where a row is not in a cache of `count` rows.
void check_range(const TensorView& rows, int64_t count, const char* operation) {
  for (const int32_t row : rows.host<int32_t>())
    require(row >= 0 && row < count, ExitCode::internal, "{}: row {} of a cache of {}", operation,
            row, count);
}

}  // namespace

void scatter_rows(Stream&, const ScatterRows& call) {
  check_scatter(call);
  check_range(call.rows, call.to.rows, "scatter_rows");
  const size_t width = static_cast<size_t>(call.from.cols) * size_of(call.from.dtype);
  const size_t stride = static_cast<size_t>(call.from.stride) * size_of(call.from.dtype);
  const size_t step = static_cast<size_t>(call.to.stride) * size_of(call.to.dtype);
  const std::span<const int32_t> rows = call.rows.host<int32_t>();
  for (size_t r = 0; r < rows.size(); ++r)
    std::memcpy(call.to.data + static_cast<size_t>(rows[r]) * step, call.from.data + r * stride,
                width);
}

void attention_decode(Stream&, const AttentionDecode& call) {
  check_decode(call, kLargestHead);
  check_range(call.rows, call.k.rows, "attention_decode");
  with_storage(call.q.dtype, "attention_decode", [&](auto storage) {
    const int64_t heads = call.q.rows * call.heads;
#pragma omp parallel for schedule(dynamic, 1) if (heads > 1)
    for (int64_t i = 0; i < heads; ++i)
      decode_head<decltype(storage)>(call, i / call.heads, i % call.heads);
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
