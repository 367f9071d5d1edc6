// Attention: checks the call and gives it to the vendor's fused kernel or to one of the tiled ones.
#include "ops/cuda/attention_fused.hpp"
#include "ops/cuda/attention_tiled.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

void check_shape(const AttentionShape& s) {
  require(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0, ExitCode::internal,
          "attention: {} heads over {} key heads", s.heads, s.kv_heads);
  require(s.head_size > 0 && s.head_size <= kLargestHead, ExitCode::internal,
          "attention: head size {}; use 1 to {}", s.head_size, kLargestHead);
  require(s.dropout.probability >= 0 && s.dropout.probability < 1, ExitCode::internal,
          "attention: dropout probability {} is not in [0, 1)", s.dropout.probability);
  require(s.dropout.probability == 0 || s.dropout.state != nullptr, ExitCode::internal,
          "attention: dropout needs a step state");
  require(s.starts.empty() ||
              (s.starts.dtype == DType::i32 && s.starts.elements() == s.batch * s.query_length),
          ExitCode::internal, "attention: starts are {} {}, expected {} of i32",
          name_of(s.starts.dtype), s.starts.shape.text(), s.batch * s.query_length);
}

void check_matrix(const Matrix& m, int64_t rows, int64_t cols, DType type, const char* name) {
  require(m.rows == rows && m.cols == cols && m.dtype == type && m.stride >= cols,
          ExitCode::internal, "attention: {} is {} [{}, {}] with stride {}, expected {} [{}, {}]",
          name, name_of(m.dtype), m.rows, m.cols, m.stride, name_of(type), rows, cols);
}

// q, k, v and output, common to both directions.
template <class Call>
void check(const Call& call) {
  const AttentionShape& s = call.shape;
  check_shape(s);
  const DType type = call.q.dtype;
  check_matrix(call.q, s.batch * s.query_length, s.heads * s.head_size, type, "q");
  check_matrix(call.k, s.batch * s.key_length, s.kv_heads * s.head_size, type, "k");
  check_matrix(call.v, s.batch * s.key_length, s.kv_heads * s.head_size, type, "v");
  check_matrix(call.output, s.batch * s.query_length, s.heads * s.head_size, type, "output");
  require(call.log_sum_exp.dtype == DType::f32 &&
              call.log_sum_exp.elements() == s.batch * s.heads * s.query_length,
          ExitCode::internal, "attention: log_sum_exp is {} {}, expected {} elements of f32",
          name_of(call.log_sum_exp.dtype), call.log_sum_exp.shape.text(),
          s.batch * s.heads * s.query_length);
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForward& call) {
  check(call);
  if (call.q.empty()) return;
  if (fused_attention_forward(stream, call)) return;
  if (!mma_attention_forward(stream, call)) tiled_attention_forward(stream, call);
}

void attention_backward(Stream& stream, const AttentionBackward& call) {
  check(call);
  const DType type = call.q.dtype;
  check_matrix(call.d_output, call.output.rows, call.output.cols, type, "d_output");
  check_matrix(call.d_q, call.q.rows, call.q.cols, type, "d_q");
  check_matrix(call.d_k, call.k.rows, call.k.cols, type, "d_k");
  check_matrix(call.d_v, call.v.rows, call.v.cols, type, "d_v");
  if (call.q.empty() && call.k.empty()) return;
  if (fused_attention_backward(stream, call)) return;
  if (!mma_attention_backward(stream, call)) tiled_attention_backward(stream, call);
}

}  // namespace trireme::inline TRIREME_BACKEND
