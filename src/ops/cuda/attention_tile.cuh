// The pieces of tiled attention: loading a tile, products of two tiles, products of a square with a
// tile, masks.
//
// 256 threads stand as 16 x 16 over a square of kTile x kTile: thread (ty, tx) owns rows ty * kM +
// i and columns tx * kM + j. A tile's row r is kept in slot (r % kM) * 16 + r / kM, so that the 16
// threads of a row read neighbouring slots: no bank conflicts. Rows are padded by 4 floats for the
// same reason.
#pragma once

#include "ops/cuda/dropout.cuh"
#include "ops/cuda/kernel.cuh"

namespace trireme::inline TRIREME_BACKEND {

inline constexpr int kTileThreads = 256;
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// kD: head size, rounded up to a size that is compiled. kTile: rows of a tile.
template <int kD, int kTile>
struct TileSizes {
  static constexpr int kM = kTile / 16;            // rows and columns of a thread
  static constexpr int kC = kD / 16;               // columns of a thread in a [kTile, kD] result
  static constexpr int kW = kC < 4 ? kC : 4;       // of them adjacent
  static constexpr int kStride = kD + 4;           // floats between rows of a tile
  static constexpr int kSquareStride = kTile + 4;  // and of a square
  static constexpr int kTileFloats = kTile * kStride;
  static constexpr int kSquareFloats = kTile * kSquareStride;
};

template <class T>
struct StridedRows {
  T* data = nullptr;
  int64_t stride = 0;
};

struct TileShape {
  int64_t query_length, key_length, query_offset, key_offset;
  int heads, group, head_size;  // group: query heads of one key head
  bool is_wide;                 // head rows can be read 16 bytes at a time
  float scale;
  uint32_t first_head;
  DropoutArguments dropout;
  const int32_t* starts;  // by row of queries; null: every query sees from the first key on
  // First key that query `query` sees, in keys of this call.
  __device__ int64_t first_seen(int64_t sequence, int64_t query) const {
    if (starts == nullptr || query >= query_length) return 0;
    return max(int64_t{0}, starts[sequence * query_length + query] - key_offset);
  }
  // First key position that query position `query` does not see, in keys of this call.
  __device__ int64_t visible(int64_t query) const {
    return min(key_length, max(int64_t{0}, query_offset + query - key_offset + 1));
  }
};

template <int kM>
__device__ inline int slot_of(int row) {
  return (row % kM) * 16 + row / kM;
}

// Rows [first, first + kTile) of one head as f32; rows at or beyond `rows` and columns beyond the
// head are 0. `is_wide`: rows can be read 16 bytes at a time.
template <int kD, int kTile, class T>
__device__ void load_tile(const StridedRows<const T>& from, int64_t first, int64_t rows,
                          int head_size, bool is_wide, float* tile) {
  using S = TileSizes<kD, kTile>;
  constexpr int kPack = kWide<T>;
  constexpr int kPacks = kD / kPack;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kTileThreads) {
    const int row = i / kPacks, column = (i % kPacks) * kPack;
    float value[kPack] = {};
    if (first + row < rows) {
      const T* at = from.data + (first + row) * from.stride + column;
      if (is_wide) {
        if (column < head_size) load(at, value);
      } else {
        for (int j = 0; j < kPack; ++j)
          if (column + j < head_size) value[j] = to_float(at[j]);
      }
    }
    float* to = tile + slot_of<S::kM>(row) * S::kStride + column;
#pragma unroll
    for (int j = 0; j < kPack; ++j) to[j] = value[j];
  }
}

// square[i][j] = sum over d of a[row i][d] * b[row j][d], for the rows of this thread.
template <int kD, int kTile>
__device__ void multiply_rows(const float* a, const float* b,
                              float (&square)[TileSizes<kD, kTile>::kM][TileSizes<kD, kTile>::kM]) {
  using S = TileSizes<kD, kTile>;
  const int tx = static_cast<int>(threadIdx.x % 16), ty = static_cast<int>(threadIdx.x / 16);
#pragma unroll
  for (int i = 0; i < S::kM; ++i)
#pragma unroll
    for (int j = 0; j < S::kM; ++j) square[i][j] = 0;
#pragma unroll 4
  for (int d = 0; d < kD; d += 4) {
    float x[S::kM][4], y[S::kM][4];
#pragma unroll
    for (int i = 0; i < S::kM; ++i) load<4>(a + (i * 16 + ty) * S::kStride + d, x[i]);
#pragma unroll
    for (int j = 0; j < S::kM; ++j) load<4>(b + (j * 16 + tx) * S::kStride + d, y[j]);
#pragma unroll
    for (int i = 0; i < S::kM; ++i)
#pragma unroll
      for (int j = 0; j < S::kM; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) square[i][j] += x[i][e] * y[j][e];
  }
}

// Leaves the square in shared memory, row r at r * kSquareStride.
template <int kD, int kTile>
__device__ void store_square(
    const float (&square)[TileSizes<kD, kTile>::kM][TileSizes<kD, kTile>::kM], float* to) {
  using S = TileSizes<kD, kTile>;
  const int tx = static_cast<int>(threadIdx.x % 16), ty = static_cast<int>(threadIdx.x / 16);
#pragma unroll
  for (int i = 0; i < S::kM; ++i)
    store<S::kM>(to + (ty * S::kM + i) * S::kSquareStride + tx * S::kM, square[i]);
}

// sum[i][column] += over r of square[row i][r] * tile[r][column], for the rows and columns of this
// thread.
template <int kD, int kTile>
__device__ void multiply_square(const float* square, const float* tile,
                                float (&sum)[TileSizes<kD, kTile>::kM][TileSizes<kD, kTile>::kC]) {
  using S = TileSizes<kD, kTile>;
  const int tx = static_cast<int>(threadIdx.x % 16), ty = static_cast<int>(threadIdx.x / 16);
#pragma unroll 1
  for (int r = 0; r < kTile; r += 4) {
    float p[S::kM][4];
#pragma unroll
    for (int i = 0; i < S::kM; ++i) load<4>(square + (ty * S::kM + i) * S::kSquareStride + r, p[i]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* row = tile + slot_of<S::kM>(r + e) * S::kStride;
#pragma unroll
      for (int g = 0; g < S::kC / S::kW; ++g) {
        float x[S::kW];
        load<S::kW>(row + (g * 16 + tx) * S::kW, x);
#pragma unroll
        for (int i = 0; i < S::kM; ++i)
#pragma unroll
          for (int w = 0; w < S::kW; ++w) sum[i][g * S::kW + w] += p[i][e] * x[w];
      }
    }
  }
}

// Writes factor * sum to rows [first, ...) of one head.
template <int kD, int kTile, class T>
__device__ void store_rows(const float (&sum)[TileSizes<kD, kTile>::kM][TileSizes<kD, kTile>::kC],
                           const float (&factor)[TileSizes<kD, kTile>::kM], int64_t first,
                           int64_t rows, int head_size, const StridedRows<T>& to) {
  using S = TileSizes<kD, kTile>;
  const int tx = static_cast<int>(threadIdx.x % 16), ty = static_cast<int>(threadIdx.x / 16);
#pragma unroll
  for (int i = 0; i < S::kM; ++i) {
    const int64_t row = first + ty * S::kM + i;
    if (row >= rows) continue;
#pragma unroll
    for (int c = 0; c < S::kC; ++c) {
      const int column = ((c / S::kW) * 16 + tx) * S::kW + c % S::kW;
      if (column < head_size)
        to.data[row * to.stride + column] = from_float<T>(sum[i][c] * factor[i]);
    }
  }
}

// The dropout mask of the probabilities of one head and sequence.
struct ProbabilityMask {
  bool on = false;
  uint64_t key = 0;
  int64_t sample = 0;
  uint32_t threshold = 0;
  float kept = 1;
};

__device__ inline ProbabilityMask probability_mask(const TileShape& s, int64_t sequence, int head) {
  const DropoutArguments& d = s.dropout;
  if (d.state == nullptr || d.state->training == 0) return {};
  return {
      true,
      dropout_key(d.state->seed, d.state->step, d.site, s.first_head + static_cast<uint32_t>(head)),
      d.state->first_sample + d.sample_offset + sequence, d.threshold, d.kept};
}

// Factors (0 or 1 / (1 - p)) of the probabilities of one query for N keys from position `key` on.
template <int N>
__device__ inline void mask_factors(const ProbabilityMask& mask, int64_t query, int64_t key,
                                    float (&factor)[N]) {
  PhiloxWords words{};
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const auto index = static_cast<uint32_t>(key + j);
    const uint32_t place = index % 4;
    if (j == 0 || place == 0)
      words = dropout_words(mask.key, index / 4, static_cast<uint32_t>(query), mask.sample);
    const uint32_t low = place == 0 ? words.x : words.y;
    const uint32_t high = place == 2 ? words.z : words.w;
    factor[j] = (place < 2 ? low : high) < mask.threshold ? 0.0f : mask.kept;
  }
}

// The shape of a call as the kernels see it; `read` are the matrices that tiles are loaded from.
inline TileShape tile_shape(const AttentionShape& s, std::initializer_list<Matrix> read) {
  const auto unit = static_cast<int64_t>(16 / size_of(read.begin()->dtype));
  return {s.query_length,
          s.key_length,
          s.query_offset,
          s.key_offset,
          static_cast<int>(s.heads),
          static_cast<int>(s.heads / s.kv_heads),
          static_cast<int>(s.head_size),
          wide(read) && s.head_size % unit == 0,
          s.scale,
          static_cast<uint32_t>(s.first_head),
          dropout_arguments(s.dropout),
          s.starts.empty() ? nullptr : elements<const int32_t>(s.starts)};
}

// Head `head` of sequence `sequence` of a matrix [B * length, heads * size].
template <class T>
__device__ StridedRows<T> head_rows(const StridedRows<T>& m, int64_t sequence, int64_t length,
                                    int head, int head_size) {
  return {m.data + sequence * length * m.stride + static_cast<int64_t>(head) * head_size, m.stride};
}

template <class T>
StridedRows<const T> read_rows(const Matrix& m) {
  return {elements<const T>(m), m.stride};
}
template <class T>
StridedRows<T> write_rows(const Matrix& m) {
  return {elements<T>(m), m.stride};
}

// Lets a kernel use `bytes` of shared memory of a block, which may be more than the default.
template <class Kernel>
void allow_shared_memory(const Kernel& kernel, size_t bytes, const char* operation) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             operation);
}

// Calls body.operator()<kD, kTile>() for the smallest compiled head size. Tiles have 64 rows, but
// 32 for heads above 128, and for heads above 64 where `floats(kD, 64)` floats of shared memory do
// not fit.
template <class Floats, class Body>
void with_tile(Stream& stream, int64_t head_size, const Floats& floats, const Body& body) {
  const size_t limit = stream.state().shared_memory_limit / sizeof(float);
  const auto choose = [&]<int kD>() {
    if constexpr (kD <= 64) return body.template operator()<kD, 64>();
    if constexpr (kD == 128) {
      if (floats.template operator()<kD, 64>() <= limit) return body.template operator()<kD, 64>();
    }
    if constexpr (kD > 64) return body.template operator()<kD, 32>();
  };
  if (head_size <= 32) return choose.template operator()<32>();
  if (head_size <= 64) return choose.template operator()<64>();
  if (head_size <= 128) return choose.template operator()<128>();
  return choose.template operator()<256>();
}

}  // namespace trireme::inline TRIREME_BACKEND
