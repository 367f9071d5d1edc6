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
  bool qk_norm = false;
  int64_t query_width() const { return heads * head_size; }
  int64_t kv_width() const { return kv_heads * head_size; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};
LocalSizes local_sizes(const ModelShape& model, const ChunkOptions& options);

// The keys and values of earlier tokens that a layer generates with, and where the tokens of this
// pass go: consecutive tokens of one sequence from position `first` on, or (first < 0) one token of
// each of several sequences.
struct LayerCache {
  TensorView memory;     // [sequences * capacity, 2 * kv_width]: keys | values, rotated
  TensorView rows;       // [n] i32, of the new tokens
  int64_t capacity = 0;  // tokens of a sequence
  int64_t sequence = 0;  // consecutive tokens: whose
  int64_t first = -1;
};

// Queries, keys and values of some tokens, as attention takes them.
struct HeadViews {
  Matrix q, k, v;
};
// Of the output of the projection: columns of [N, qkv_width]; with norms of q and k, which work on
// dense rows of one head, the three dense matrices that follow each other there.
HeadViews head_views(const LocalSizes& s, TensorView qkv);

// What a layer keeps between forward and backward. Under Recompute::selective the norm outputs and
// the activation output are made again; under Recompute::full only `residual` is kept.
struct LayerStash {
  TensorView residual;     // [R,h] input of the layer
  TensorView normalized1;  // [R,h]
  TensorView qkv;          // [N, qkv_width], rotated; with norms of q and k as the product left it
  TensorView heads;        // [N, query_width + kv_width]: q and k behind their norms, rotated
  TensorView attention;    // [N, query_width]
  TensorView log_sum_exp;  // [B, heads, T] f32
  TensorView middle;       // [R,h] residual behind attention
  TensorView normalized2;  // [R,h]
  TensorView up;           // [N, up_width]
  TensorView activation;   // [N, ffn]
  const LayerCache* cache = nullptr;  // set: attention goes over the cache (generation)
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
  TensorView heads;         // [N, query_width + kv_width] recomputed
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
