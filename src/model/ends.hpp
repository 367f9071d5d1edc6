// Private to the model: what stands before the first layer and behind the last.
#pragma once

#include "model/block.hpp"

namespace trireme {

// Token table (and position table), split over tp by vocabulary rows.
class Embedding {
 public:
  Embedding(const ModelShape& model, const ChunkOptions& options, const ParameterStore& store);
  // out [R,h].
  void forward(LayerContext& c, const MicroBatch& batch, TensorView out, Scratch& v) const;
  // d [R,h] is used up.
  void backward(LayerContext& c, const MicroBatch& batch, TensorView d, Scratch& v) const;

 private:
  DropoutSite dropout_site(const LayerContext& c, const MicroBatch& batch) const;
  LocalSizes sizes_;
  ChunkOptions options_;
  int64_t first_row_ = 0, layers_ = 0;
  float dropout_ = 0;
  TensorParallel tp_;
  TensorView table_, d_table_, positions_, d_positions_;
};

// Final norm, output product and loss.
class Head {
 public:
  Head(const ModelShape& model, const ChunkOptions& options, const ParameterStore& store);
  // Adds the summed loss and the counted tokens to the step state. In Mode::train also adds the
  // weight gradients and writes d_residual [R,h]; `pending` is what the last layer left to add.
  void run(LayerContext& c, Mode mode, const MicroBatch& batch, const PendingAdd& pending,
           TensorView d_residual, Scratch& v) const;
  // Logits [n - first, vocabulary rows] f32 of the tokens from `first` on, for generation.
  void logits(LayerContext& c, const PendingAdd& pending, int64_t first, TensorView out,
              Scratch& v) const;

 private:
  // One piece of the tokens: logits, loss, and in training the gradients of both factors.
  void piece(LayerContext& c, Mode mode, const MicroBatch& batch, TensorView x, TensorView dx,
             int64_t first, Scratch& v) const;
  LocalSizes sizes_;
  ChunkOptions options_;
  int64_t first_row_ = 0, valid_ = 0;
  TensorParallel tp_;
  Norm norm_;
  TensorView table_, d_table_;
};

}  // namespace trireme
