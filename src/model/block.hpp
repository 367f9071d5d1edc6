// Private to the model: one transformer layer, norm - attention - norm - MLP with residuals.
#pragma once

#include "model/linear.hpp"
#include "model/scratch.hpp"
#include "model/tensor_parallel.hpp"

namespace trireme {

// An output that has not yet been added to the residual stream: the next norm adds it.
struct PendingAdd {
  TensorView residual;  // [R,h]; empty: nothing is pending
  TensorView delta;     // [R,h]
  TensorView bias;      // [h] or empty
  DropoutSite dropout;
};

// A norm with its gradients.
struct Norm {
  Norm() = default;
  Norm(const ModelShape& model, const ParameterStore& store, const std::string& name);
  // Adds what is pending into `residual` (which is complete where nothing is), then normalises it.
  void forward(Stream& stream, const PendingAdd& pending, TensorView residual,
               TensorView normalized) const;
  void backward(Stream& stream, TensorView x, TensorView d_normalized, TensorView d_residual) const;

  NormKind kind = NormKind::layer_norm;
  float epsilon = 0;
  TensorView gain, bias, d_gain, d_bias;
};

class Block {
 public:
  Block(const ModelShape& model, const ChunkOptions& options, int64_t layer,
        const ParameterStore& store);
  enum class Purpose : uint8_t { forward, recompute };  // recompute leaves out the last product
  // Fills the stash; returns the MLP output, still to be added to stash.middle.
  PendingAdd forward(LayerContext& c, const MicroBatch& batch, const PendingAdd& pending,
                     LayerStash& s, Scratch& v, Purpose purpose = Purpose::forward) const;
  // d_residual [R,h]: gradient by the layer's output; replaced by the gradient by its input.
  void backward(LayerContext& c, const MicroBatch& batch, LayerStash& s, Scratch& v,
                TensorView d_residual) const;
  int64_t layer() const { return layer_; }

 private:
  DropoutSite dropout_site(const LayerContext& c, const MicroBatch& batch, int kind) const;
  AttentionShape attention_shape(const LayerContext& c, const MicroBatch& batch) const;
  void attention_forward_part(LayerContext& c, const MicroBatch& batch, TensorView normalized,
                              LayerStash& s, Scratch& v) const;
  // Attention proper, to s.attention: over the micro-batch, or over a cache.
  void attend(LayerContext& c, const MicroBatch& batch, LayerStash& s, const Scratch& v) const;
  void attend_cached(LayerContext& c, const MicroBatch& batch, const HeadViews& h,
                     LayerStash& s) const;
  void mlp_forward_part(LayerContext& c, TensorView normalized, TensorView activation,
                        LayerStash& s, Scratch& v, Purpose purpose) const;
  void mlp_backward(LayerContext& c, const MicroBatch& batch, LayerStash& s, Scratch& v,
                    TensorView d_residual) const;
  void attention_backward_part(LayerContext& c, const MicroBatch& batch, LayerStash& s, Scratch& v,
                               TensorView d_residual) const;
  // Gradient through dropout behind attention (1) or MLP (2).
  TensorView branch_gradient(LayerContext& c, const MicroBatch& batch, int kind, Scratch& v,
                             TensorView d_residual) const;
  // d_wide = gradient by the input of a row linear; returns the whole gradient by its output.
  TensorView row_backward_input(LayerContext& c, const RowLinear& linear, TensorView d_branch,
                                TensorView d_wide, Scratch& v) const;
  // Gradients of a column linear whose input is a norm's output, into scratch.d_normalized.
  void column_backward(LayerContext& c, const ColumnLinear& linear, TensorView normalized,
                       Matrix d_wide, Scratch& v) const;
  // Where attention finds q, k and v.
  HeadViews heads(const LayerStash& s, const Scratch& v) const;
  // Makes them of the projection's output: norms of q and k, rotation.
  void make_heads(LayerContext& c, const MicroBatch& batch, const LayerStash& s,
                  const Scratch& v) const;
  // Gradients by q, k and v in scratch.d_qkv become those by the projection's output. Uses up the
  // memory of normalised heads.
  void heads_backward(LayerContext& c, const MicroBatch& batch, const LayerStash& s,
                      const Scratch& v) const;
  void rotate(LayerContext& c, const MicroBatch& batch, const HeadViews& h, const Scratch& v,
              bool inverse) const;

  int64_t layer_ = 0;
  LocalSizes sizes_;
  ChunkOptions options_;
  bool gated_ = false, rotary_ = false;
  float dropout_ = 0;
  TensorParallel tp_;
  Norm norm1_, norm2_, query_norm_, key_norm_;
  ColumnLinear qkv_, up_;
  RowLinear output_, down_;
};

}  // namespace trireme
