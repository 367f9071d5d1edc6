// Sums and maxima over the threads of a warp or block, in an order fixed by the shape of the block:
// the same bits in every run.
#pragma once

#include <cstdint>

namespace trireme::inline TRIREME_BACKEND {

struct SumOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct MaxOf {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Every lane gets the result.
template <class T, class How>
__device__ inline T warp_reduce(T value, How how) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    value = how(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// Every thread of a block of blockDim.x threads (a multiple of 32, one dimension) gets the result.
// `shared` holds 32 values; it may be used again after the call.
template <class T, class How>
__device__ inline T block_reduce(T value, How how, T* shared, T neutral) {
  value = warp_reduce(value, how);
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return value;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < warps ? shared[lane] : neutral, how);
  __syncthreads();
  return value;
}

}  // namespace trireme::inline TRIREME_BACKEND
