// Token and position tables: look-up, and their gradients in row order.
//
// The gradient sorts the tokens by table row (a stable sort, so that equal rows keep the order of
// the tokens); the warps at the first of a run of equal rows own the row of the table and add up
// the run in order. No atomics.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "ops/cuda/dropout.cuh"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 8;  // rows of a run that are loaded before they are added

template <class T>
struct Lookup {
  const int32_t *tokens, *positions;
  const T *table, *position_table;  // position_table may be null
  T* out;
  int64_t first_row, rows, position_rows, width;
};

// A position without a row gives NaN: the loss shows it, where the host could not look without
// waiting.
template <class T, int V>
__global__ void embedding_forward_kernel(Lookup<T> a, DropoutArguments dropout) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  if (column >= a.width) return;
  float value[V] = {};
  const int64_t row = a.tokens[blockIdx.x] - a.first_row;
  if (row >= 0 && row < a.rows) load(a.table + row * a.width + column, value);
  if (a.position_table != nullptr) {
    const int64_t position = a.positions[blockIdx.x];
    float p[V];
    if (position >= 0 && position < a.position_rows) {
      load(a.position_table + position * a.width + column, p);
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) p[j] = nanf("");
    }
#pragma unroll
    for (int j = 0; j < V; ++j) value[j] += p[j];
  }
  apply_mask(dropout, row_mask(dropout, blockIdx.x), column, value);
  store(a.out + blockIdx.x * a.width + column, value);
}

// The row of the table of each id, `table_rows` where it is not held here, and the number of each
// token.
__global__ void number_kernel(const int32_t* ids, int64_t first_row, int64_t table_rows,
                              int64_t count, int32_t* keys, int32_t* tokens) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t row = ids[i] - first_row;
  keys[i] = static_cast<int32_t>(row >= 0 && row < table_rows ? row : table_rows);
  tokens[i] = static_cast<int32_t>(i);
}

// Elements from `at` on that are equal to ids[at], counted by a whole warp.
__device__ int64_t run_length(const int32_t* ids, int64_t at, int64_t count) {
  const unsigned lane = threadIdx.x % 32;
  for (int64_t first = at; first < count; first += 32) {
    const bool same = first + lane < count && ids[first + lane] == ids[at];
    const unsigned differ = ~__ballot_sync(0xffffffffu, same);
    if (differ != 0) return first - at + __ffs(static_cast<int>(differ)) - 1;
  }
  return count - at;
}

// One warp for 32 * V columns of one sorted place; warps that are not at the start of a run leave.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    add_runs_kernel(const int32_t* keys, const int32_t* tokens, int64_t count, const T* d,
                    float* table, int64_t table_rows, int64_t width) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (at >= count || (at > 0 && keys[at] == keys[at - 1])) return;
  const int64_t row = keys[at];
  if (row == table_rows) return;
  const int64_t length = run_length(keys, at, count);
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x % 32) * V;
  if (column >= width) return;
  float sum[V] = {};
  for (int64_t i = 0; i < length; i += kAhead) {
    float ahead[kAhead][V] = {};
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (i + k < length) load(d + tokens[at + i + k] * width + column, ahead[k]);
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
#pragma unroll
      for (int j = 0; j < V; ++j) sum[j] += ahead[k][j];
  }
  float* out = table + row * width + column;
#pragma unroll
  for (int j = 0; j < V; ++j) out[j] += sum[j];
}

// Table rows and token numbers, sorted by table row, into `workspace` [2, n].
void sort_tokens(Stream& stream, const TensorView& ids, int64_t first_row, int64_t table_rows,
                 const TensorView& workspace) {
  const auto n = static_cast<int>(ids.elements());
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(table_rows)));
  int32_t* sorted = elements<int32_t>(workspace);
  std::byte* work = work_memory(stream);
  auto* keys = reinterpret_cast<int32_t*>(work);
  int32_t* tokens = keys + n;
  const auto taken = static_cast<size_t>(round_up(int64_t{8} * n, 256));
  size_t bytes = 0;
  check_cuda(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted, tokens, sorted + n, n, 0,
                                             bits, native(stream)),
             "embedding_backward: sizing the sort");
  require(taken + bytes <= kWorkBytes, ExitCode::internal,
          "embedding_backward: {} tokens are too many to sort in {} bytes of work memory; use a "
          "smaller micro-batch",
          n, kWorkBytes);
  number_kernel<<<blocks_for(n, kThreads), kThreads, 0, native(stream)>>>(
      elements<int32_t>(ids), first_row, table_rows, n, keys, tokens);
  check_launch("embedding_backward: numbering the tokens");
  check_cuda(cub::DeviceRadixSort::SortPairs(work + taken, bytes, keys, sorted, tokens, sorted + n,
                                             n, 0, bits, native(stream)),
             "embedding_backward: sorting");
}

void add_table_gradient(Stream& stream, const TensorView& ids, int64_t first_row,
                        const EmbeddingBackward& call, const TensorView& d_table) {
  const int64_t n = ids.elements();
  const int64_t width = d_table.shape[1];
  sort_tokens(stream, ids, first_row, d_table.shape[0], call.workspace);
  const int32_t* sorted = elements<int32_t>(call.workspace);
  const bool is_wide = wide({Matrix(call.d_out.as({n, width}))});
  with_type(call.d_out.dtype, is_wide, "embedding_backward", [&]<class T, int V>() {
    const dim3 grid(blocks_for(n, kThreads / 32), blocks_for(width, 32 * V));
    add_runs_kernel<T, V>
        <<<grid, kThreads, 0, native(stream)>>>(sorted, sorted + n, n, elements<T>(call.d_out),
                                                elements<float>(d_table), d_table.shape[0], width);
    check_launch("embedding_backward");
  });
}

void check_table(const TensorView& table, int64_t width, DType type, const char* what) {
  require(table.shape.dims == 2 && table.shape[1] == width && table.dtype == type,
          ExitCode::internal, "{} is {} {}, expected {} with rows of {}", what,
          name_of(table.dtype), table.shape.text(), name_of(type), width);
}

// Columns of `out`, whose leading extents are the tokens.
int64_t width_of(const TensorView& out, const TensorView& tokens, const char* operation) {
  const int64_t n = tokens.elements();
  require(tokens.dtype == DType::i32 && out.elements() % n == 0 && n < (int64_t{1} << 31),
          ExitCode::internal, "{}: {} tokens of {} for {} {}", operation, n, name_of(tokens.dtype),
          name_of(out.dtype), out.shape.text());
  return out.elements() / n;
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& call) {
  if (call.tokens.empty()) return;
  const int64_t n = call.tokens.elements();
  const int64_t width = width_of(call.out, call.tokens, "embedding_forward");
  check_table(call.table, width, call.out.dtype, "embedding_forward: table");
  const bool has_positions = !call.position_table.empty();
  if (has_positions) {
    check_table(call.position_table, width, call.out.dtype, "embedding_forward: position_table");
    require_vector(call.positions, n, DType::i32, "embedding_forward: positions");
  }
  const DropoutArguments dropout = dropout_arguments(call.dropout);
  const bool is_wide =
      wide({Matrix(call.table), Matrix(call.position_table), Matrix(call.out.as({n, width}))});
  with_type(call.out.dtype, is_wide, "embedding_forward", [&]<class T, int V>() {
    const unsigned threads = threads_for(ceil_div(width, V), kThreads);
    const dim3 grid(blocks_for(n, 1), blocks_for(ceil_div(width, V), threads));
    const Lookup<T> a{elements<int32_t>(call.tokens),
                      elements<int32_t>(call.positions),
                      elements<T>(call.table),
                      has_positions ? elements<T>(call.position_table) : nullptr,
                      elements<T>(call.out),
                      call.first_row,
                      call.table.shape[0],
                      has_positions ? call.position_table.shape[0] : 0,
                      width};
    embedding_forward_kernel<T, V><<<grid, threads, 0, native(stream)>>>(a, dropout);
    check_launch("embedding_forward");
  });
}

void embedding_backward(Stream& stream, const EmbeddingBackward& call) {
  if (call.tokens.empty()) return;
  const int64_t n = call.tokens.elements();
  const int64_t width = width_of(call.d_out, call.tokens, "embedding_backward");
  require(call.workspace.elements() >= 2 * n && call.workspace.dtype == DType::i32,
          ExitCode::internal,
          "embedding_backward: the workspace has {} elements of {}, needs {} of i32",
          call.workspace.elements(), name_of(call.workspace.dtype), 2 * n);
  if (!call.d_table.empty()) {
    check_table(call.d_table, width, DType::f32, "embedding_backward: d_table");
    add_table_gradient(stream, call.tokens, call.first_row, call, call.d_table);
  }
  if (!call.d_position_table.empty()) {
    check_table(call.d_position_table, width, DType::f32, "embedding_backward: d_position_table");
    require_vector(call.positions, n, DType::i32, "embedding_backward: positions");
    add_table_gradient(stream, call.positions, 0, call, call.d_position_table);
  }
}

}  // namespace trireme::inline TRIREME_BACKEND
