// The layers of one pipeline stage for generation: new tokens of sequences whose earlier keys and
// values are kept. The forward code is the training's; only attention goes over the cache.
//
// All memory is taken at set-up, from an arena: the cache, and work memory for `rows` tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/model/chunk.hpp"

namespace trireme {

struct DecoderOptions {
  GridShape grid;
  GridCoord here;
  int64_t sequences = 1;  // that the cache holds
  int64_t capacity = 1;   // tokens of each
  int64_t rows = 1;       // most tokens of a pass
};

// The tokens of a pass, n of them, in device memory: consecutive ones of `sequence` from position
// `first` on, or, where first is -1, one of each of n sequences.
struct DecodeBatch {
  TensorView tokens;     // [n] i32; read by the first stage
  TensorView positions;  // [n] i32
  TensorView rows;       // [n] i32: sequence * capacity + position
  int64_t sequence = 0;
  int64_t first = -1;
};

class Decoder {
 public:
  // `embeds` and `has_head` as for Chunk; the model's dropout is off. `parameters` need no
  // gradients and outlive the decoder.
  Decoder(const ModelShape& model, const DecoderOptions& options, LayerRange layers, bool embeds,
          bool has_head, const ParameterStore& parameters, Arena& arena);
  ~Decoder();
  Decoder(Decoder&&) noexcept;

  // Fills constants; once, where the arena is real.
  void prepare(Stream& stream);
  // [n, hidden] where a received activation goes before `forward`. Not on the first stage.
  TensorView input(int64_t n) const;
  // Runs the layers. Returns [n, hidden], to be sent on; on the last stage the logits in f32,
  // [m, vocabulary rows of this tp rank], of every token, or of the last of consecutive ones. Valid
  // until the next call. Collective over tp.
  TensorView forward(LayerContext& context, const DecodeBatch& batch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
