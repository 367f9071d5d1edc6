// The catalogue of numerical operations: shapes, types and arithmetic. Defined twice, in `cpu/`
// (the reference) and in `cuda/`.
//
// Notation: n rows (tokens, sequence-major: row = sequence * T + position), h width, B sequences,
// T positions, H query heads, K key/value heads, D head size, V vocabulary rows held here.
// "compute type" is f32 or bf16 and is the same for all activations of a call; accumulation is f32.
// Weights have the compute type; weight *gradients* are f32 and are added to (`+=`) unless said.
// Every output is written in full. Views do not overlap unless an operation says "in place".
// A wrong shape or type throws Error(internal) on the host before anything runs.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/base/tensor.hpp"
#include "trireme/device/device.hpp"

namespace trireme::inline TRIREME_BACKEND {

// ---- Step state ---------------------------------------------------------------------------------

// Lives in device memory, one a rank, so that a step needs no host synchronisation and can be
// captured. Written by `set_step`, the loss, the norm and `finish_norm`; read by dropout and AdamW.
struct StepState {
  // Set by the host at the start of a step.
  uint64_t seed;
  int64_t step;          // index of the step, from 0
  int64_t first_sample;  // global index of the first sequence of the global batch
  float learning_rate;
  float clip;         // largest norm; 0: no clipping
  float correction1;  // 1 - beta1^(updates+1)
  float correction2;  // 1 - beta2^(updates+1)
  int32_t training;   // 0: dropout is off
  int32_t reserved;
  // Accumulated on the device: sums[0] loss, sums[1] counted tokens, sums[2] squared gradient norm
  // of the pieces that this rank counts. Three adjacent f32: one all-reduce makes them global.
  float sums[4];
  // Results of finish_norm.
  float norm;            // of the mean-token-loss gradient
  float gradient_scale;  // factor on the raw gradient: clip factor / counted tokens
  int32_t skip;          // 1: the norm is not finite, no update
  int32_t reserved2;
};

// Host values to the device; clears sums, norm, gradient_scale and skip.
void set_step(Stream& stream, StepState* state, const StepState& values);
// norm = sqrt(sums[2]) / sums[1]; factor = min(1, clip / (norm + 1e-6)) (1 where clip is 0 or the
// norm is 0); gradient_scale = factor / sums[1] (0 where no token counts); skip = norm is not
// finite.
void finish_norm(Stream& stream, StepState* state);
// Blocks until the state is on the host.
StepState get_step(Stream& stream, const StepState* state);

// ---- Matrix product -----------------------------------------------------------------------------

enum class Epilogue : uint8_t {
  none,
  bias,       // c += bias (row vector)
  bias_gelu,  // pre_activation = product + bias; c = gelu(pre_activation as stored), the same bits
              // as gelu_forward gives, so that recomputing changes nothing
};

// c [m,n] = op(a) [m,k] * op(b) [k,n] + beta * c. Matrices may be strided. a and b have one type; c
// has that type or f32 (weight gradients: beta 1). Empty k means zero. bias [n], compute type.
struct Gemm {
  Matrix a, b, c;
  bool transpose_a = false;
  bool transpose_b = false;
  float beta = 0;
  Epilogue epilogue = Epilogue::none;
  TensorView bias;
  Matrix pre_activation;           // [m,n], bias_gelu only
  const float* scale_a = nullptr;  // reserved for 8-bit types
  const float* scale_b = nullptr;
  float* absolute_maximum = nullptr;
};
void gemm(Stream& stream, const Gemm& call);

// sum [cols] f32 += sum over rows of x [rows, cols] (bias gradient). Deterministic.
void add_column_sums(Stream& stream, Matrix x, TensorView sum);

// ---- Attention ----------------------------------------------------------------------------------

// Address of a dropout mask: a site of the model and where the rows sit in the global batch. The
// mask of an element depends on (seed, step, site, global sample, position, index) only, so it is
// the same on every layout and is drawn again when recomputing: `dropout_mask.hpp` has the
// arithmetic.
struct DropoutSite {
  float probability = 0;      // 0: off, nothing is drawn
  uint32_t site = 0;          // 8 * layer + kind, unique in the model
  int64_t sample_offset = 0;  // global sample of row 0, relative to StepState::first_sample
  int64_t row_offset = 0;     // rows before row 0 in the micro-batch (sequence parallel)
  int64_t sequence = 1;       // T: row r is sample (row_offset + r) / T, position % T
  const StepState* state = nullptr;
};

// Causal softmax(q k^T * scale) v. Row r of q is query position `query_offset + r % query_length`
// of sequence r / query_length; likewise keys. Query position i sees key positions <= i. Head j of
// q uses head j / (H / K) of k and v. q, output [B*Tq, H*D]; k, v [B*Tk, K*D]; strided, compute
// type. log_sum_exp [B, H, Tq] f32 (natural logarithm, of the scaled scores), so that results over
// disjoint key ranges merge. Work memory does not grow with Tq * Tk.
struct AttentionShape {
  int64_t batch = 0, query_length = 0, key_length = 0;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t query_offset = 0, key_offset = 0;
  float scale = 1;
  int64_t first_head = 0;  // global index of head 0, for the dropout address
  DropoutSite dropout;     // on the probabilities; index is the key position
  bool deterministic = true;
  // [B*Tq] i32 or empty: the first key position that each query sees, at most its own, for rows of
  // several documents. Within a sequence it never falls.
  TensorView starts;
  // With `starts`: documents in all rows together and tokens of the longest, where the host knows
  // them; a query's start is then the first query of its document, and queries are keys. 0: not
  // known.
  int64_t documents = 0, longest_document = 0;
};
struct AttentionForward {
  AttentionShape shape;
  Matrix q, k, v, output;
  TensorView log_sum_exp;
};
struct AttentionBackward {
  AttentionShape shape;
  Matrix q, k, v, output, d_output;
  TensorView log_sum_exp;
  Matrix d_q, d_k, d_v;  // written, not added to
};
void attention_forward(Stream& stream, const AttentionForward& call);
void attention_backward(Stream& stream, const AttentionBackward& call);

// to[rows[r]] = from[r]: keys and values of new tokens to their rows of a cache. from [n, w]
// and to [m, w] strided, one type; rows [n] i32, no two alike.
struct ScatterRows {
  Matrix from;
  TensorView rows;
  Matrix to;
};
void scatter_rows(Stream& stream, const ScatterRows& call);

// One new token of each of n sequences over the keys and values that a cache holds of its sequence:
// output = softmax(q k^T * scale) v, in f32 inside. k, v [S * capacity, K*D] strided: sequence s
// owns the rows from s * capacity on, by position. rows [n] i32: the cache row of each token; it
// sees the rows of its sequence up to and including its own. q, output [n, H*D] strided, compute
// type.
struct AttentionDecode {
  int64_t heads = 0, kv_heads = 0, head_size = 0, capacity = 0;
  float scale = 1;
  Matrix q, k, v, output;
  TensorView rows;
};
void attention_decode(Stream& stream, const AttentionDecode& call);

// Rotary position embedding in place, half rotation: with x = (a, b) the halves of a head,
// (a, b) -> (a cos - b sin, b cos + a sin). x [n, heads*D] strided, compute type; positions [n]
// i32; frequencies [D/2] f32. Angles in f32 (position * frequency). `inverse` rotates back
// (gradient).
struct Rope {
  Matrix x;
  int64_t heads = 0, head_size = 0;
  TensorView positions, frequencies;
  bool inverse = false;
};
void rope(Stream& stream, const Rope& call);

// ---- Norms, fused with the residual add ---------------------------------------------------------

enum class NormKind : uint8_t { layer_norm, rms_norm };

// residual_out = residual_in + dropout(delta + delta_bias)   (just residual_in where delta is
// empty) normalized   = norm(residual_out) * gain + bias layer_norm: (x - mean) / sqrt(variance +
// epsilon); rms_norm: x / sqrt(mean square + epsilon), no bias. All [n,h] compute type; gain, bias,
// delta_bias [h]. residual_out may be residual_in (in place) and may be empty when delta is.
// Statistics in f32; nothing is kept for the backward pass.
struct NormForward {
  NormKind kind = NormKind::layer_norm;
  float epsilon = 1e-5f;
  TensorView residual_in, delta, delta_bias, residual_out, gain, bias, normalized;
  DropoutSite dropout;
};
// d_residual += d norm / d x (x = residual_out of the forward call); statistics are computed again.
// d_gain, d_bias [h] f32 are added to.
struct NormBackward {
  NormKind kind = NormKind::layer_norm;
  float epsilon = 1e-5f;
  TensorView x, gain, d_normalized, d_residual, d_gain, d_bias;
};
void norm_forward(Stream& stream, const NormForward& call);
void norm_backward(Stream& stream, const NormBackward& call);

// out = residual + dropout(delta + delta_bias); out may be residual. delta_bias may be empty.
struct ResidualAdd {
  TensorView residual, delta, delta_bias, out;
  DropoutSite dropout;
};
void residual_add(Stream& stream, const ResidualAdd& call);
// out = mask * x / (1 - p): dropout and its gradient are the same operation. out may be x.
struct Dropout {
  TensorView x, out;
  DropoutSite site;
};
void dropout(Stream& stream, const Dropout& call);

// ---- Pointwise ----------------------------------------------------------------------------------

// GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
void gelu_forward(Stream& stream, TensorView x, TensorView y);
void gelu_backward(Stream& stream, TensorView x, TensorView dy, TensorView dx);  // dx may be dy
// x [n, 2f] = (gate | up), y [n, f] = silu(gate) * up.
void swiglu_forward(Stream& stream, Matrix x, Matrix y);
void swiglu_backward(Stream& stream, Matrix x, Matrix dy, Matrix dx);  // dx may be x
// to = from, rounding to nearest even; f32 <-> bf16 or the same type.
void cast(Stream& stream, TensorView from, TensorView to);
// y += x, both f32 or both compute type.
void add(Stream& stream, TensorView x, TensorView y);
// sum [...] = parts[0] + parts[1] + ... of parts [n, ...], in this order: each sum is made in f32
// and rounded once. Both compute type.
void sum_parts(Stream& stream, TensorView parts, TensorView sum);

// ---- Embedding and loss -------------------------------------------------------------------------

// out [n,h] = table[token - first_row] where the table [V,h] holds the row, else 0; plus
// positions_table[position] where that view is not empty. Then dropout. tokens, positions [n] i32.
struct EmbeddingForward {
  TensorView tokens, positions, table, position_table, out;
  int64_t first_row = 0;
  DropoutSite dropout;
};
// d_table [V,h] f32 and d_position_table f32 are added to, in row order: deterministic. `d_out` has
// dropout already undone. Either gradient may be empty. workspace: i32 [2n], for sorting on
// devices.
struct EmbeddingBackward {
  TensorView tokens, positions, d_out, d_table, d_position_table, workspace;
  int64_t first_row = 0;
};
void embedding_forward(Stream& stream, const EmbeddingForward& call);
void embedding_backward(Stream& stream, const EmbeddingBackward& call);

// Cross-entropy over a vocabulary split by rows, in three calls around two all-reduces:
//   1. partial_max:  row_max [n] f32 = max over the valid columns held here (-inf if none)
//      (all-reduce max over tp)
//   2. partial_sums: sums [2,n] f32: sums[0] = sum over valid columns of exp(logit - row_max),
//      sums[1] = logit of the target where it is held here, else 0     (all-reduce sum over tp)
//   3. finish: loss [n] = log(sums[0]) + row_max - sums[1] where mask is 1, else 0; adds their sum
//   to
//      state->sums[0] and the count to state->sums[1] where `count` is set; and, in place,
//      logits = (softmax - onehot(target)) * mask (0 in columns that are not valid).
// logits [n,V] compute type; targets [n] i32 (global ids); mask [n] f32 of 0 and 1.
struct CrossEntropy {
  Matrix logits;
  int64_t first_row = 0;  // global id of column 0
  int64_t valid = 0;      // columns that are real vocabulary; the rest are padding
  TensorView targets, mask, row_max, sums, loss;
  bool write_gradient = true;
  bool count = true;  // one rank of a tp group counts
  StepState* state = nullptr;
};
void cross_entropy_max(Stream& stream, const CrossEntropy& call);
void cross_entropy_sums(Stream& stream, const CrossEntropy& call);
void cross_entropy_finish(Stream& stream, const CrossEntropy& call);

// ---- Optimizer ----------------------------------------------------------------------------------

// A range of a flat buffer that is treated alike, in elements from the views' start.
struct AdamWSegment {
  int64_t first = 0, count = 0;
  float weight_decay = 0;
};
// AdamW (Loshchilov and Hutter, 2019), with g = gradient * state->gradient_scale:
//   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   master -= rate * (m / c1 / (sqrt(v / c2) + epsilon) + weight_decay * master)
//   value = master rounded to its type.
// Nothing changes where state->skip is set. gradient, master, m, v f32 [count]; value compute type.
struct AdamW {
  TensorView gradient, master, m, v, value;
  std::span<const AdamWSegment> segments;         // cover what is to be updated
  const AdamWSegment* device_segments = nullptr;  // the same, in device memory
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  const StepState* state = nullptr;
};
void adamw(Stream& stream, const AdamW& call);
// state->sums[2] += sum of x^2, f32 x, accumulated in f64 or pairwise; deterministic.
void add_squared_norm(Stream& stream, TensorView x, StepState* state);

// Bytes of work memory that the operations of this backend keep for themselves, fixed at set-up.
size_t workspace_bytes();

}  // namespace trireme::inline TRIREME_BACKEND
