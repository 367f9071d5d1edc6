// One row of a norm held in the registers of a warp or a block, shared by the forward and the
// backward kernel, so that the backward pass finds the same statistics again.
//
// A thread holds K packs of V elements: pack k of thread t starts at column (k * blockDim.x + t) *
// V. Rows of up to 128 packs have a warp each and several rows a block (blockDim.y); wider rows
// have a block.
#pragma once

#include "ops/cuda/kernel.cuh"
#include "ops/cuda/reduce.cuh"

namespace trireme::inline TRIREME_BACKEND {

struct RowStatistics {
  float mean = 0;     // 0 for rms_norm
  float inverse = 0;  // 1 / sqrt(variance + epsilon), or of the mean square
};

template <int V>
__device__ inline int64_t pack_column(int k) {
  return (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
}

__device__ inline float row_sum(float value, float* shared) {
  return block_reduce(value, SumOf{}, shared, 0.0f);
}

// Columns at or beyond `width` hold 0 in x and are left out.
template <NormKind kKind, int V, int K>
__device__ inline RowStatistics row_statistics(const float (&x)[K][V], int64_t width, float epsilon,
                                               float* shared) {
  RowStatistics row;
  const float scale = 1.0f / static_cast<float>(width);
  if constexpr (kKind == NormKind::layer_norm) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int j = 0; j < V; ++j) sum += x[k][j];
    row.mean = row_sum(sum, shared) * scale;
  }
  float square = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (pack_column<V>(k) >= width) continue;
#pragma unroll
    for (int j = 0; j < V; ++j) square += (x[k][j] - row.mean) * (x[k][j] - row.mean);
  }
  row.inverse = 1.0f / sqrtf(row_sum(square, shared) * scale + epsilon);
  return row;
}

// How a row of `width` elements is laid over threads.
struct RowLayout {
  int packs = 0;  // K
  dim3 block;     // threads of a row, rows of a block
};

// Most threads of a block that holds K packs a thread.
constexpr int norm_threads(int packs) {
  return packs < 8 ? 256 : 1024;
}

// Throws Error(internal) for rows that do not fit in the registers of a block.
inline RowLayout row_layout(int64_t width, int v, const char* operation) {
  const int64_t packs = ceil_div(width, v);
  if (v > 1 && packs <= 128) {
    const int k = packs <= 32 ? 1 : packs <= 64 ? 2 : 4;
    return {k, dim3(32, 4)};
  }
  for (int k : {2, 4, 8}) {
    if (v == 1 && k < 8) continue;
    const int64_t threads = round_up(ceil_div(packs, k), 32);
    if (threads <= norm_threads(k)) return {k, dim3(static_cast<unsigned>(threads), 1)};
  }
  fail(ExitCode::internal, "{}: rows of {} elements are wider than the {} that this kernel holds",
       operation, width, int64_t{8} * 1024 * v);
}

// Calls body.operator()<T, V, K>(layout).
template <class Body>
void with_row_layout(DType type, bool is_wide, int64_t width, const char* operation,
                     const Body& body) {
  with_type(type, is_wide, operation, [&]<class T, int V>() {
    const RowLayout layout = row_layout(width, V, operation);
    if constexpr (V == 1) {
      body.template operator()<T, V, 8>(layout);
    } else {
      switch (layout.packs) {
        case 1:
          return body.template operator()<T, V, 1>(layout);
        case 2:
          return body.template operator()<T, V, 2>(layout);
        case 4:
          return body.template operator()<T, V, 4>(layout);
        default:
          return body.template operator()<T, V, 8>(layout);
      }
    }
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
