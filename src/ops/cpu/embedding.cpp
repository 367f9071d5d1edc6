// Token and position tables: look-up, and their gradients in row order.
#include <omp.h>

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/storage.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace {

// Throws Error(internal) where a position has no row.
void check_positions(const TensorView& positions, const TensorView& tokens, int64_t rows,
                     const char* operation) {
  require(positions.elements() == tokens.elements() && positions.dtype == DType::i32,
          ExitCode::internal, "{}: positions are {} {}, expected {} of i32", operation,
          name_of(positions.dtype), positions.shape.text(), tokens.elements());
  for (int32_t p : positions.host<int32_t>())
    require(p >= 0 && p < rows, ExitCode::internal,
            "{}: position {}, but the table has {} rows; shorten the sequence", operation, p, rows);
}

// Row of a table for an id, or null where it is not held here.
template <class Element>
Element* held_row(Element* table, int64_t id, int64_t first_row, int64_t rows, int64_t width) {
  const int64_t row = id - first_row;
  return row >= 0 && row < rows ? table + row * width : nullptr;
}

template <class Storage>
void embed_row(const typename Storage::Element* token, const typename Storage::Element* position,
               typename Storage::Element* out, int64_t width, const DropoutMask& mask,
               int64_t row) {
  for_tiles(width, [&](int64_t first, int64_t count) {
    alignas(64) float value[kTile] = {};
    if (token != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) value[i] = Storage::load(token[first + i]);
    }
    if (position != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) value[i] += Storage::load(position[first + i]);
    }
    if (mask.on()) mask.apply(row, first, count, value);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[first + i] = Storage::store(value[i]);
  });
}

// d_table [rows, width] += rows of d_out, in order. Each thread owns a range of columns, so that
// the order of every sum is that of the rows, for any number of threads.
template <class Storage>
void add_table_gradient(const TensorView& ids, int64_t first_row, const TensorView& d_out,
                        const TensorView& d_table) {
  const int64_t rows = d_table.shape[0];
  const int64_t width = d_table.shape[1];
  const auto* d = d_out.ptr<typename Storage::Element>();
  float* table = d_table.ptr<float>();
  const std::span<const int32_t> id = ids.host<int32_t>();
#pragma omp parallel if (d_out.elements() > kParallelGrain)
  {
    const int64_t threads = omp_get_num_threads();
    const int64_t share = round_up(ceil_div(width, threads), 16);
    const int64_t first = std::min(width, share * omp_get_thread_num());
    const int64_t last = std::min(width, first + share);
    for (size_t r = 0; r < id.size(); ++r) {
      float* __restrict sum = held_row(table, id[r], first_row, rows, width);
      if (sum == nullptr) continue;
      const auto* __restrict row = d + static_cast<int64_t>(r) * width;
#pragma omp simd
      for (int64_t i = first; i < last; ++i) sum[i] += Storage::load(row[i]);
    }
  }
}

void check_table(const TensorView& table, int64_t width, DType type, const char* what) {
  require(table.shape.dims == 2 && table.shape[1] == width && table.dtype == type,
          ExitCode::internal, "{} is {} {}, expected {} with rows of {}", what,
          name_of(table.dtype), table.shape.text(), name_of(type), width);
}

// Columns of `out`, whose leading extents are the tokens.
int64_t width_of(const TensorView& out, const TensorView& tokens, const char* operation) {
  const int64_t n = tokens.elements();
  require(tokens.dtype == DType::i32 && out.elements() % n == 0, ExitCode::internal,
          "{}: {} tokens of {} for {} {}", operation, n, name_of(tokens.dtype), name_of(out.dtype),
          out.shape.text());
  return out.elements() / n;
}

}  // namespace

void embedding_forward(Stream&, const EmbeddingForward& call) {
  if (call.tokens.empty()) return;
  const int64_t width = width_of(call.out, call.tokens, "embedding_forward");
  check_table(call.table, width, call.out.dtype, "embedding_forward: table");
  const bool has_positions = !call.position_table.empty();
  if (has_positions) {
    check_table(call.position_table, width, call.out.dtype, "embedding_forward: position_table");
    check_positions(call.positions, call.tokens, call.position_table.shape[0], "embedding_forward");
  }
  const DropoutMask mask(call.dropout);
  with_storage(call.out.dtype, "embedding_forward", [&]<class Storage>(Storage) {
    using Element = typename Storage::Element;
    const Element* table = call.table.ptr<Element>();
    const int32_t* token = call.tokens.ptr<int32_t>();
    Element* out = call.out.ptr<Element>();
    for_rows(call.tokens.elements(), width, [&](int64_t r) {
      const Element* row = held_row(table, token[r], call.first_row, call.table.shape[0], width);
      const Element* position = nullptr;
      if (has_positions)
        position = call.position_table.ptr<Element>() + call.positions.ptr<int32_t>()[r] * width;
      embed_row<Storage>(row, position, out + r * width, width, mask, r);
    });
  });
}

void embedding_backward(Stream&, const EmbeddingBackward& call) {
  if (call.tokens.empty()) return;
  const int64_t width = width_of(call.d_out, call.tokens, "embedding_backward");
  const bool has_positions = !call.d_position_table.empty();
  if (!call.d_table.empty())
    check_table(call.d_table, width, DType::f32, "embedding_backward: d_table");
  if (has_positions) {
    check_table(call.d_position_table, width, DType::f32, "embedding_backward: d_position_table");
    check_positions(call.positions, call.tokens, call.d_position_table.shape[0],
                    "embedding_backward");
  }
  with_storage(call.d_out.dtype, "embedding_backward", [&]<class Storage>(Storage) {
    if (!call.d_table.empty())
      add_table_gradient<Storage>(call.tokens, call.first_row, call.d_out, call.d_table);
    if (has_positions)
      add_table_gradient<Storage>(call.positions, 0, call.d_out, call.d_position_table);
  });
}

}  // namespace trireme::inline TRIREME_BACKEND
