// What both twins check of the operations of generation.
#pragma once

#include "trireme/base/error.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

inline void check_rows(const TensorView& rows, int64_t count, const char* operation) {
  require(rows.dtype == DType::i32 && rows.elements() == count, ExitCode::internal,
          "{}: rows are {} {}, expected {} of i32", operation, name_of(rows.dtype),
          rows.shape.text(), count);
}

inline void check_scatter(const ScatterRows& call) {
  check_rows(call.rows, call.from.rows, "scatter_rows");
  require(call.to.dtype == call.from.dtype && call.to.cols == call.from.cols, ExitCode::internal,
          "scatter_rows: rows of {} {} to {} {}", call.from.cols, name_of(call.from.dtype),
          call.to.cols, name_of(call.to.dtype));
}

inline void check_decode(const AttentionDecode& call, int64_t largest_head) {
  const Matrix &q = call.q, &k = call.k;
  require(call.head_size > 0 && call.head_size <= largest_head && call.kv_heads > 0 &&
              call.heads % call.kv_heads == 0 && call.capacity > 0,
          ExitCode::internal, "attention_decode: {} heads over {} of size {}, capacity {}",
          call.heads, call.kv_heads, call.head_size, call.capacity);
  check_rows(call.rows, q.rows, "attention_decode");
  for (const Matrix& m : {q, call.output})
    require(m.rows == q.rows && m.cols == call.heads * call.head_size && m.dtype == q.dtype,
            ExitCode::internal, "attention_decode: queries or output are {} [{}, {}]",
            name_of(m.dtype), m.rows, m.cols);
  for (const Matrix& m : {k, call.v})
    require(m.rows == k.rows && m.rows % call.capacity == 0 &&
                m.cols == call.kv_heads * call.head_size && m.dtype == q.dtype,
            ExitCode::internal, "attention_decode: keys or values are {} [{}, {}]",
            name_of(m.dtype), m.rows, m.cols);
}

}  // namespace trireme::inline TRIREME_BACKEND
