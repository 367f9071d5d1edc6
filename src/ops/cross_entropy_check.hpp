// Shapes and types that both twins ask of a cross-entropy call. Throws Error(internal).
#pragma once

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

inline void check_cross_entropy(const CrossEntropy& call, const char* operation) {
  const int64_t n = call.logits.rows;
  const auto vector = [&](const TensorView& view, int64_t count, DType type, const char* name) {
    require(view.elements() == count && view.dtype == type, ExitCode::internal,
            "{}: {} is {} {}, expected {} of {}", operation, name, name_of(view.dtype),
            view.shape.text(), count, name_of(type));
  };
  vector(call.targets, n, DType::i32, "targets");
  vector(call.mask, n, DType::f32, "mask");
  vector(call.row_max, n, DType::f32, "row_max");
  vector(call.sums, 2 * n, DType::f32, "sums");
  vector(call.loss, n, DType::f32, "loss");
  require(call.valid >= 0 && call.valid <= call.logits.cols, ExitCode::internal,
          "{}: {} valid columns of {}", operation, call.valid, call.logits.cols);
  require(!call.count || call.state != nullptr, ExitCode::internal, "{}: no step state to count in",
          operation);
}

}  // namespace trireme::inline TRIREME_BACKEND
