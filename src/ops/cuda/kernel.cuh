// What the kernels share: element types, 16-byte accesses, launch checks and the choice of a
// template by run-time type and alignment.
//
// Kernels are templates on the element type T (float or bf16) and on V, the elements that a thread
// moves with one access: 16 bytes where addresses and widths allow it, else one element.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "device/cuda/stream_state.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

using bf16 = __nv_bfloat16;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(bf16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, bf16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

// V neighbouring elements as they are in memory, moved with accesses of up to 16 bytes. Held as
// words, so that two bf16 share a register.
template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Pack {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * V;
  using Word = std::conditional_t<kBytes % 4 == 0, uint32_t, uint16_t>;
  static constexpr int kWords = kBytes / static_cast<int>(sizeof(Word));
  Word word[kWords];
};

template <int V, class T>
__device__ inline Pack<T, V> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, V>*>(from);
}
template <class T, int V>
__device__ inline void unpack(const Pack<T, V>& pack, float (&to)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if constexpr (sizeof(T) == 4) {
      to[i] = __uint_as_float(pack.word[i]);
    } else if constexpr (V == 1) {
      to[i] = __uint_as_float(static_cast<uint32_t>(pack.word[i]) << 16);
    } else {
      const uint32_t word = pack.word[i / 2];
      to[i] = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    }
  }
}
template <int V, class T>
__device__ inline void load(const T* from, float (&to)[V]) {
  unpack(load_pack<V>(from), to);
}
template <int V, class T>
__device__ inline void store(T* to, const float (&from)[V]) {
  Pack<T, V> pack;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < V; ++i) pack.word[i] = __float_as_uint(from[i]);
  } else if constexpr (V == 1) {
    pack.word[0] = __bfloat16_as_ushort(__float2bfloat16_rn(from[0]));
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(from[i], from[i + 1]);
      memcpy(&pack.word[i / 2], &pair, sizeof(pair));
    }
  }
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
}

template <class T>
inline constexpr int kWide = static_cast<int>(16 / sizeof(T));

inline cudaStream_t native(Stream& stream) {
  return stream.state().stream;
}

// To be called behind every launch. Throws Error(device) when the launch was refused.
inline void check_launch(const char* operation,
                         std::source_location where = std::source_location::current()) {
  check_cuda(cudaGetLastError(), operation, where);
}

inline bool aligned16(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}
// True where rows can be moved 16 bytes at a time. Empty views pass.
inline bool wide(const Matrix& m) {
  const int64_t unit = 16 / static_cast<int64_t>(size_of(m.dtype));
  return m.data == nullptr || (aligned16(m.data) && m.cols % unit == 0 && m.stride % unit == 0);
}
inline bool wide(std::initializer_list<Matrix> all) {
  for (const Matrix& m : all)
    if (!wide(m)) return false;
  return true;
}
// A view as one vector [1, elements], for bias and gain.
inline Matrix as_row(const TensorView& view) {
  return {view.data, view.empty() ? 0 : 1, view.elements(), view.elements(), view.dtype};
}

template <class T>
T* elements(const TensorView& view) {
  return reinterpret_cast<T*>(view.data);
}
template <class T>
T* elements(const Matrix& m) {
  return reinterpret_cast<T*>(m.data);
}

// Calls body.operator()<T, V>() for the element type, with V of 16 bytes where `is_wide`, else 1.
template <class Body>
void with_type(DType type, bool is_wide, const char* operation, const Body& body) {
  switch (type) {
    case DType::f32:
      return is_wide ? body.template operator()<float, 4>() : body.template operator()<float, 1>();
    case DType::bf16:
      return is_wide ? body.template operator()<bf16, 8>() : body.template operator()<bf16, 1>();
    default:
      fail(ExitCode::internal, "{}: element type {}; use f32 or bf16", operation, name_of(type));
  }
}
// Calls body.operator()<T>() for the element type.
template <class Body>
void with_type(DType type, const char* operation, const Body& body) {
  switch (type) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bf16>();
    default:
      fail(ExitCode::internal, "{}: element type {}; use f32 or bf16", operation, name_of(type));
  }
}

// Throws Error(internal) unless `view` has this shape and type. `what` is "operation: argument".
inline void require_view(const TensorView& view, const Shape& shape, DType type, const char* what) {
  require(view.shape == shape && view.dtype == type, ExitCode::internal,
          "{} is {} {}, expected {} {}", what, name_of(view.dtype), view.shape.text(),
          name_of(type), shape.text());
}
// Same element count and type; the extents may be grouped differently.
inline void require_like(const TensorView& view, const TensorView& other, const char* what) {
  require(view.elements() == other.elements() && view.dtype == other.dtype, ExitCode::internal,
          "{} is {} {}, expected {} elements of {}", what, name_of(view.dtype), view.shape.text(),
          other.elements(), name_of(other.dtype));
}
// A vector of `count` elements.
inline void require_vector(const TensorView& view, int64_t count, DType type, const char* what) {
  require(view.elements() == count && view.dtype == type, ExitCode::internal,
          "{} is {} {}, expected {} elements of {}", what, name_of(view.dtype), view.shape.text(),
          count, name_of(type));
}
inline void require_matrix(const Matrix& m, int64_t rows, int64_t cols, DType type,
                           const char* what) {
  require(m.rows == rows && m.cols == cols && m.dtype == type && m.stride >= m.cols,
          ExitCode::internal, "{} is {} [{}, {}] with stride {}, expected {} [{}, {}]", what,
          name_of(m.dtype), m.rows, m.cols, m.stride, name_of(type), rows, cols);
}

// Blocks along a grid dimension; the device allows 2^31 - 1 in x.
inline unsigned blocks_for(int64_t work, int64_t per_block) {
  const int64_t blocks = ceil_div(work, per_block);
  require(blocks < (int64_t{1} << 31), ExitCode::internal, "{} blocks are too many for one launch",
          blocks);
  return static_cast<unsigned>(blocks);
}
// Threads of a block that walks a row of `items`: a multiple of 32, at most `most`.
inline unsigned threads_for(int64_t items, int64_t most) {
  return static_cast<unsigned>(std::min(most, round_up(std::max<int64_t>(items, 1), 32)));
}

}  // namespace trireme::inline TRIREME_BACKEND
