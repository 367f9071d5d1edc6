// Sums over rows: each column is summed by one thread, in an order that depends on the rows only.
#include "ops/cpu/parallel.hpp"
#include "ops/cpu/storage.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int64_t kColumns = 128;  // of a block
constexpr int64_t kRows =
    64;  // summed on their own before they join the total: rounding grows slower

template <class Storage>
void add_block(const Matrix& x, int64_t first, int64_t count, float* sum) {
  const auto* data = reinterpret_cast<const typename Storage::Element*>(x.data) + first;
  alignas(64) float total[kColumns] = {};
  for (int64_t block = 0; block < x.rows; block += kRows) {
    alignas(64) float part[kColumns] = {};
    for (int64_t r = block; r < std::min(x.rows, block + kRows); ++r) {
      const auto* row = data + r * x.stride;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) part[i] += Storage::load(row[i]);
    }
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) total[i] += part[i];
  }
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[first + i] += total[i];
}

}  // namespace

void add_column_sums(Stream&, Matrix x, TensorView sum) {
  require_view(sum, {x.cols}, DType::f32, "add_column_sums: sum");
  float* out = sum.ptr<float>();
  with_storage(x.dtype, "add_column_sums", [&](auto storage) {
    const int64_t blocks = ceil_div(x.cols, kColumns);
#pragma omp parallel for schedule(static) if (x.rows * x.cols > kParallelGrain)
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = b * kColumns;
      add_block<decltype(storage)>(x, first, std::min(kColumns, x.cols - first), out);
    }
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
