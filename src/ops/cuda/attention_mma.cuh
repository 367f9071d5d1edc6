// The pieces of attention on the tensor cores: bf16 tiles in shared memory, products of 16 x 8
// results over 16 (mma.m16n8k16) with f32 sums, dropout masks as bits.
//
// A block of 4 warps owns kSide rows, each warp 16 of them. A square of scores is 16 x kSide for a
// warp, in 8 pieces of 8 columns: element e of piece n of lane l is row l / 4 + 8 * (e / 2), column
// 8 * n + 2 * (l % 4) + e % 2. That is also the layout of a left factor, so squares never leave the
// registers.
#pragma once

#include "ops/cuda/attention_tile.cuh"

namespace trireme::inline TRIREME_BACKEND {

inline constexpr int kSide = 64;  // rows of a tile
inline constexpr int kMmaThreads = 128;
inline constexpr int kPieces = kSide / 8;

using Square = float[kPieces][4];

// Elements between the rows of a tile: 8 rows of 16 bytes fall on different banks.
template <int kD>
inline constexpr int kRowStride = kD + 8;
template <int kD>
inline constexpr int kTileElements = kSide* kRowStride<kD>;

// Place of a thread in its warp's squares.
struct Lane {
  int warp, lane, row, column;  // row of elements 0 and 1, column of elements 0 and 2 of piece 0
  __device__ Lane()
      : warp(static_cast<int>(threadIdx.x / 32)),
        lane(static_cast<int>(threadIdx.x % 32)),
        row(lane / 4),
        column(2 * (lane % 4)) {}
};

// A place counted from a tile's start, kept within the tile.
__device__ inline int within_side(int64_t place) {
  return static_cast<int>(max(int64_t{0}, min(place, int64_t{kSide})));
}

// Rows [first, first + kSide) of one head; rows at or beyond `rows` and columns beyond the head are
// 0. Rows can be read 16 bytes at a time.
template <int kD>
__device__ inline void load_side(const StridedRows<const bf16>& from, int64_t first, int64_t rows,
                                 int head_size, bf16* tile) {
  constexpr int kPacks = kD / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kSide * kPacks; i += kMmaThreads) {
    const int row = i / kPacks, column = (i % kPacks) * 8;
    uint4 value = {0, 0, 0, 0};
    if (first + row < rows && column < head_size)
      value = *reinterpret_cast<const uint4*>(from.data + (first + row) * from.stride + column);
    *reinterpret_cast<uint4*>(tile + row * kRowStride<kD> + column) = value;
  }
}

// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&to)[4], const bf16* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&to)[4], const bf16* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// sum += left [16, 16] * right [16, 8].
__device__ inline void multiply_add(float (&sum)[4], const uint32_t (&left)[4], uint32_t right0,
                                    uint32_t right1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

__device__ inline uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}

// square = the 16 rows at `a` times all rows of tile `b`, over d.
template <int kD>
__device__ inline void multiply_sides(const bf16* a, const bf16* b, Square& square) {
  const Lane at;
  const bf16* left = a + (at.lane % 16) * kRowStride<kD> + at.lane / 16 * 8;
  const bf16* right = b + (at.lane / 16 * 8 + at.lane % 8) * kRowStride<kD> + at.lane / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < kPieces; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) square[n][e] = 0;
#pragma unroll
  for (int d = 0; d < kD; d += 16) {
    uint32_t x[4];
    load_matrices(x, left + d);
#pragma unroll
    for (int n = 0; n < kPieces; n += 2) {
      uint32_t y[4];
      load_matrices(y, right + n * 8 * kRowStride<kD> + d);
      multiply_add(square[n], x, y[0], y[1]);
      multiply_add(square[n + 1], x, y[2], y[3]);
    }
  }
}

// sum [16, kD] += square, rounded to bf16, times the tile.
template <int kD>
__device__ inline void multiply_by_side(const Square& square, const bf16* tile,
                                        float (&sum)[kD / 8][4]) {
  const Lane at;
  const bf16* right = tile + (at.lane % 16) * kRowStride<kD> + at.lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kPieces; k += 2) {
    const uint32_t x[4] = {pack_pair(square[k][0], square[k][1]),
                           pack_pair(square[k][2], square[k][3]),
                           pack_pair(square[k + 1][0], square[k + 1][1]),
                           pack_pair(square[k + 1][2], square[k + 1][3])};
#pragma unroll
    for (int n = 0; n < kD / 8; n += 2) {
      uint32_t y[4];
      load_transposed(y, right + k * 8 * kRowStride<kD> + n * 8);
      multiply_add(sum[n], x, y[0], y[1]);
      multiply_add(sum[n + 1], x, y[2], y[3]);
    }
  }
}

// Writes factor[0] * sum to row `row` and factor[1] * sum to row + 8 of one head.
template <int kD>
__device__ inline void store_side(const float (&sum)[kD / 8][4], const float (&factor)[2],
                                  int64_t row, int64_t rows, int head_size,
                                  const StridedRows<bf16>& to) {
  const Lane at;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= rows) continue;
    bf16* line = to.data + (row + 8 * half) * to.stride + at.column;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n)
      if (8 * n < head_size)
        *reinterpret_cast<uint32_t*>(line + 8 * n) =
            pack_pair(sum[n][2 * half] * factor[half], sum[n][2 * half + 1] * factor[half]);
  }
}

// Which elements of a warp's square stay. One draw gives four neighbouring keys: each lane draws
// for others as well, and lanes exchange bits.
class KeptBits {
 public:
  // Rows are queries from `query` on, columns are keys from `key` on (a multiple of 4).
  __device__ static KeptBits of_queries(const ProbabilityMask& mask, int64_t query, int64_t key) {
    const Lane at;
    const int odd = at.lane % 2;
    const auto own_query = static_cast<uint32_t>(query + at.row + 8 * odd);
    const auto group = static_cast<uint32_t>(key / 4 + at.lane % 4 / 2);
    uint32_t own = 0;
#pragma unroll 2
    for (int n = 0; n < kPieces; ++n)
      own |= draw(mask, own_query, group + static_cast<uint32_t>(2 * n)) << (4 * n);
    const uint32_t other = __shfl_xor_sync(0xffffffffu, own, 1);
    const uint32_t upper = (odd ? other : own) >> (2 * odd);
    const uint32_t lower = (odd ? own : other) >> (2 * odd);
    return KeptBits(upper, upper >> 1, lower, lower >> 1);
  }
  // Rows are keys from `key` on (a multiple of 4), columns are queries from `query` on.
  __device__ static KeptBits of_keys(const ProbabilityMask& mask, int64_t query, int64_t key) {
    const Lane at;
    const int place = at.row % 4, half = at.row / 4;
    const auto own_query = static_cast<uint32_t>(query + at.column + place % 2);
    const auto group = static_cast<uint32_t>(key / 4 + half + 2 * (place / 2));
    uint32_t own = 0;
#pragma unroll 2
    for (int n = 0; n < kPieces; ++n)
      own |= draw(mask, own_query + static_cast<uint32_t>(8 * n), group) << (4 * n);
    uint32_t bits[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      bits[e] = __shfl_sync(0xffffffffu, own, (4 * half + e) * 4 + at.lane % 4) >> place;
    return KeptBits(bits[0], bits[1], bits[2], bits[3]);
  }
  __device__ static KeptBits all() {
    return KeptBits(~0u, ~0u, ~0u, ~0u);
  }
  __device__ bool operator()(int piece, int element) const {
    return (bits_[element] >> (4 * piece) & 1) != 0;
  }

 private:
  __device__ KeptBits(uint32_t a, uint32_t b, uint32_t c, uint32_t d) : bits_{a, b, c, d} {}
  // Bit j: key 4 * group + j stays.
  __device__ static uint32_t draw(const ProbabilityMask& mask, uint32_t query, uint32_t group) {
    const PhiloxWords w = dropout_words(mask.key, group, query, mask.sample);
    return (w.x >= mask.threshold ? 1u : 0u) | (w.y >= mask.threshold ? 2u : 0u) |
           (w.z >= mask.threshold ? 4u : 0u) | (w.w >= mask.threshold ? 8u : 0u);
  }
  uint32_t bits_[4];
};

// Calls body.operator()<kD>() for the smallest compiled head size.
template <class Body>
void with_side(int64_t head_size, const Body& body) {
  if (head_size <= 32) return body.template operator()<32>();
  if (head_size <= 64) return body.template operator()<64>();
  return body.template operator()<128>();
}

// True where the kernels take the call: bf16 rows that move 16 bytes at a time, and draws of
// dropout that begin at a tile's edge.
inline bool suits_mma(const AttentionShape& s, std::initializer_list<Matrix> all) {
  return all.begin()->dtype == DType::bf16 && wide(all) && s.head_size % 8 == 0 &&
         s.head_size <= 128 && s.key_offset % 4 == 0;
}

}  // namespace trireme::inline TRIREME_BACKEND
