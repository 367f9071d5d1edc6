// What a model is: sizes and options, counts of parameters and FLOPs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/tensor.hpp"

namespace trireme {

enum class Family : uint8_t { gpt2, llama };
enum class Recompute : uint8_t { none, selective, full };

// Scaling of rotary frequencies as Llama 3.1 does; factor 0: none.
struct RopeScaling {
  double factor = 0;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_length = 8192;
};

struct ModelShape {
  Family family = Family::gpt2;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_size = 0, ffn = 0, vocab = 0;
  int64_t max_sequence =
      0;  // length of the learned position table (gpt2) and of a training sequence
  bool tied = true;
  bool bias = true;               // on all linears and, for layer norm, on norms
  bool qkv_bias = false;          // where `bias` is off: on query, key and value,
  bool output_bias = false;       // on the output of attention,
  bool mlp_bias = false;          // on the linears of the MLP
  bool qk_norm = false;           // RMSNorm over each head of q and k, before the rotation
  bool gated = false;             // SwiGLU; else GELU
  bool learned_positions = true;  // else RoPE
  bool layer_norm = true;         // else RMSNorm
  float norm_epsilon = 1e-5f;
  double rope_base = 10000;
  RopeScaling rope_scaling;
  float dropout = 0;
  double init_std = 0.02;
  DType compute = DType::f32;  // type of weights and activations

  bool has_qkv_bias() const { return bias || qkv_bias; }
  bool has_output_bias() const { return bias || output_bias; }
  bool has_mlp_bias() const { return bias || mlp_bias; }
  int64_t query_width() const { return heads * head_size; }
  int64_t kv_width() const { return kv_heads * head_size; }
  // Every logical parameter once.
  int64_t parameters() const;
  // Parameters in matrix products: the head counts also when tied, the input table does not.
  int64_t product_parameters() const;
  // Forward and backward, causal attention at half: 6 * product_parameters + 6 * layers * width *
  // T.
  int64_t flops_per_token(int64_t sequence) const;
  // The convention with the full attention square.
  int64_t flops_per_token_full(int64_t sequence) const;
};

// Which layers a pipeline rank holds: one range [first, last) per chunk (virtual stage). Chunk c of
// stage s is virtual stage c * pp + s. Layers that do not divide go to the earlier virtual stages
// but the first and last give way (they also hold embedding and head).
struct LayerRange {
  int64_t first = 0, last = 0;
  int64_t count() const { return last - first; }
};
// Throws Error(bad_config) when there are more virtual stages than layers.
std::vector<LayerRange> layer_ranges(int64_t layers, int pp, int virtual_stages, int stage);

// RoPE frequencies [head_size / 2], f32, with scaling applied in f64.
std::vector<float> rope_frequencies(const ModelShape& shape);

}  // namespace trireme
