// Private to the model: the memory of a layer for one micro-batch, and work memory shared by
// chunks.
#pragma once

#include "trireme/model/chunk.hpp"

namespace trireme {

// Sizes of one rank's share. N tokens; R rows of the residual stream (N, or N / tp under sequence
// parallelism); widths are local to the tp rank.
struct LocalSizes {
  int64_t tokens = 0, rows = 0, hidden = 0;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t ffn = 0, up_width = 0;  // up_width: gate and up, or up alone
  int64_t vocab_rows = 0;         // allocated rows of the table
  int64_t head_rows = 0;          // tokens of a piece of the head
  DType compute = DType::f32;
  int64_t query_width() const { return heads * head_size; }
  int64_t kv_width() const { return kv_heads * head_size; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};
LocalSizes local_sizes(const ModelShape& model, const ChunkOptions& options);

// What a layer keeps between forward and backward. Under Recompute::selective the norm outputs and
// the activation output are made again; under Recompute::full only `residual` is kept.
struct LayerStash {
  TensorView residual;     // [R,h] input of the layer
  TensorView normalized1;  // [R,h]
  TensorView qkv;          // [N, qkv_width], rotated
  TensorView attention;    // [N, query_width]
  TensorView log_sum_exp;  // [B, heads, T] f32
  TensorView middle;       // [R,h] residual behind attention
  TensorView normalized2;  // [R,h]
  TensorView up;           // [N, up_width]
  TensorView activation;   // [N, ffn]
};
// Takes what `keep` says; `residual` is taken apart.
LayerStash take_layer_stash(const LocalSizes& s, const BatchShape& batch, Recompute keep,
                            Arena& arena, std::string_view purpose);

struct Scratch {
  TensorView delta;         // [R,h] output of attention or MLP, before the residual add
  TensorView gathered;      // [N,h] whole rows of a split activation (sequence parallel)
  TensorView partial;       // [N,h] before the reduction over tp (sequence parallel)
  TensorView normalized;    // [R,h] recomputed norm output
  TensorView activation;    // [N,ffn] recomputed
  TensorView d_branch;      // [R,h] gradient behind dropout
  TensorView d_normalized;  // [R,h], or [N,h] where tp reduces in place
  TensorView d_qkv, d_attention, d_activation;
  LayerStash layer;   // a whole layer, made again under Recompute::full
  TensorView logits;  // [head_rows, vocab_rows]
  TensorView row_max, sums, loss;
  TensorView final_residual;  // [R,h]
  TensorView embedding_work;  // [2N] i32
  TensorView embedded;        // [N,h] before the reduction over tp
  TensorView rope_frequencies;
};

}  // namespace trireme
