// Rows of several documents as what a variable-length attention takes: a list of sequences, by
// their lengths and by where each begins in every operand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Operands of attention and its gradient with offsets of their own.
inline constexpr size_t kRangeOperands = 9;

struct DocumentRanges {
  const int32_t* starts;  // [rows], as AttentionShape::starts
  int64_t rows, row_length;
  int64_t capacity;                 // sequences of the list, at least the documents
  int64_t strides[kRangeOperands];  // elements from one row of an operand to the next
  // Written. Sequences behind the last document have length 0 and begin behind the last row.
  int32_t* lengths;      // [capacity]
  int64_t* offsets;      // [kRangeOperands, capacity + 1], in elements
  int64_t offsets_step;  // between operands
  int32_t* begins;       // [capacity], scratch
};
void find_document_ranges(Stream& stream, const DocumentRanges& call);

// log_sum_exp between [batch, heads, length], as AttentionShape has it, and [batch * length,
// heads]: to the second where `by_row`, else back. The two views do not overlap.
void turn_log_sum_exp(Stream& stream, const AttentionShape& shape, bool by_row, const float* from,
                      float* to);

}  // namespace trireme::inline TRIREME_BACKEND
