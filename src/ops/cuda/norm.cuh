// One row of a norm held in the registers of a warp or a block, shared by the forward and the
// backward kernel.
//
// A thread holds K packs of V elements: pack k of thread t starts at column (k * blockDim.x + t) *
// V. Rows of up to 128 packs have a warp each and several rows a block (blockDim.y); wider rows
// have a block.
#pragma once

#include "ops/cuda/kernel.cuh"
#include "ops/cuda/reduce.cuh"

namespace trireme::inline TRIREME_BACKEND {

template <int V>
__device__ inline int pack_column(int k) {
  return static_cast<int>((static_cast<unsigned>(k) * blockDim.x + threadIdx.x) * V);
}

// Hides from the compiler that the packs are the ones it has converted before: it would keep all
// their f32 values in registers from one pass over a row to the next.
template <class T, int V, int K>
__device__ inline void convert_again(Pack<T, V> (&packs)[K]) {
  if constexpr (sizeof(T) < 4 && V > 1) {
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (uint32_t& word : packs[k].word) asm volatile("" : "+r"(word));
  }
}

// Sums of several values over the threads of a row, in an order fixed by the layout. Two halves of
// the shared memory take turns, so that one barrier a call is enough.
class RowSums {
 public:
  static constexpr int kMost = 3;  // values of a call
  using Memory = float[2][kMost][32];
  __device__ explicit RowSums(Memory& shared) : shared_(shared) {}

  template <int N>
  __device__ void operator()(float (&value)[N]) {
    static_assert(N <= kMost);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = warp_reduce(value[i], SumOf{});
    const unsigned warps = blockDim.x / 32;
    if (warps == 1) return;
    turn_ = 1 - turn_;
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) shared_[turn_][i][threadIdx.x / 32] = value[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      value[i] = 0;
      for (unsigned w = 0; w < warps; ++w) value[i] += shared_[turn_][i][w];
    }
  }

 private:
  Memory& shared_;
  int turn_ = 0;
};

// How a row of `width` elements is laid over threads.
struct RowLayout {
  int packs = 0;  // K: 1, 2, 3, 4 or 8
  dim3 block;     // threads of a row, rows of a block
};

// `most(K, V)`: threads that a block of the kernel may have. Throws Error(internal) for rows that
// do not fit in the registers of a block.
template <class Most>
RowLayout row_layout(int64_t width, int v, const char* operation, const Most& most) {
  const int64_t packs = ceil_div(width, v);
  if (v > 1 && packs <= 128) return {static_cast<int>(ceil_div(packs, 32)), dim3(32, 4)};
  for (int k : {1, 2, 4, 8}) {
    if (v == 1 && k < 8) continue;
    const int64_t threads = round_up(ceil_div(packs, k), 32);
    if (threads <= most(k, v)) return {k, dim3(static_cast<unsigned>(threads), 1)};
  }
  fail(ExitCode::internal, "{}: rows of {} elements are wider than the {} that this kernel holds",
       operation, width, int64_t{8} * most(8, v) * v);
}

// Calls body.operator()<T, V, K>(layout).
template <class Most, class Body>
void with_row_layout(DType type, bool is_wide, int64_t width, const char* operation,
                     const Most& most, const Body& body) {
  with_type(type, is_wide, operation, [&]<class T, int V>() {
    const RowLayout layout = row_layout(width, V, operation, most);
    if constexpr (V == 1) {
      body.template operator()<T, V, 8>(layout);
    } else {
      switch (layout.packs) {
        case 1:
          return body.template operator()<T, V, 1>(layout);
        case 2:
          return body.template operator()<T, V, 2>(layout);
        case 3:
          return body.template operator()<T, V, 3>(layout);
        case 4:
          return body.template operator()<T, V, 4>(layout);
        default:
          return body.template operator()<T, V, 8>(layout);
      }
    }
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
