// One block finds the documents: each thread counts those that begin in its share of the rows.
#include "ops/cuda/attention_ranges.hpp"
#include "ops/cuda/kernel.cuh"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 1024;

__device__ bool begins(const DocumentRanges& d, int64_t row) {
  return d.starts[row] == row % d.row_length;
}

// Of the threads before this one.
__device__ int32_t sum_before(int32_t own) {
  __shared__ int32_t sums[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  sums[t] = own;
  __syncthreads();
  for (int step = 1; step < kThreads; step *= 2) {
    const int32_t left = t >= step ? sums[t - step] : 0;
    __syncthreads();
    sums[t] += left;
    __syncthreads();
  }
  return sums[t] - own;
}

__global__ void __launch_bounds__(kThreads) ranges_kernel(DocumentRanges d) {
  __shared__ int32_t count;
  const int64_t share = (d.rows + kThreads - 1) / kThreads;
  const int64_t first = min(d.rows, threadIdx.x * share), end = min(d.rows, first + share);
  int32_t own = 0;
  for (int64_t row = first; row < end; ++row) own += begins(d, row);
  int32_t at = sum_before(own);
  if (threadIdx.x == kThreads - 1) count = at + own;
  for (int64_t row = first; row < end; ++row)
    if (begins(d, row) && at < d.capacity) d.begins[at++] = static_cast<int32_t>(row);
  __syncthreads();
  const auto place = [&](int64_t document) {
    return document < count && document < d.capacity ? int64_t{d.begins[document]} : d.rows;
  };
  for (int64_t i = threadIdx.x; i <= d.capacity; i += kThreads) {
    const int64_t begin = place(i);
    if (i < d.capacity) d.lengths[i] = static_cast<int32_t>(place(i + 1) - begin);
    for (size_t operand = 0; operand < kRangeOperands; ++operand)
      d.offsets[static_cast<int64_t>(operand) * d.offsets_step + i] = begin * d.strides[operand];
  }
}

__global__ void turn_kernel(const float* from, float* to, int64_t count, int64_t heads,
                            int64_t length, bool by_row) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t position = i % length, head = i / length % heads, sequence = i / length / heads;
  const int64_t row_place = (sequence * length + position) * heads + head;
  if (by_row)
    to[row_place] = from[i];
  else
    to[i] = from[row_place];
}

}  // namespace

void find_document_ranges(Stream& stream, const DocumentRanges& call) {
  ranges_kernel<<<1, kThreads, 0, native(stream)>>>(call);
  check_launch("find_document_ranges");
}

void turn_log_sum_exp(Stream& stream, const AttentionShape& shape, bool by_row, const float* from,
                      float* to) {
  constexpr int threads = 256;
  const int64_t count = shape.batch * shape.heads * shape.query_length;
  turn_kernel<<<blocks_for(count, threads), threads, 0, native(stream)>>>(
      from, to, count, shape.heads, shape.query_length, by_row);
  check_launch("turn_log_sum_exp");
}

}  // namespace trireme::inline TRIREME_BACKEND
