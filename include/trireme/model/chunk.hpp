// A chunk: the layers that one virtual pipeline stage holds, with the embedding before the first
// layer and norm, head and loss behind the last. Forward and backward of one micro-batch each.
//
// All memory is taken at set-up from an arena: `slots` stashes (one for each micro-batch in
// flight), and scratch shared by the chunks of a rank. The same calls on a dry arena size the plan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/comm/grid_shape.hpp"
#include "trireme/device/device.hpp"
#include "trireme/model/model_shape.hpp"
#include "trireme/model/parameter_store.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {

struct BatchShape {
  int64_t micro = 1;     // sequences of a micro-batch on one dp rank
  int64_t sequence = 1;  // T
  int64_t tokens() const { return micro * sequence; }
};

struct ChunkOptions {
  BatchShape batch;
  Recompute recompute = Recompute::none;
  int64_t recompute_layers = 0;  // full: the first this many layers of each chunk
  bool sequence_parallel = false;
  bool tp_overlap = false;  // of sequence parallelism: traffic over tp beside the products
  bool deterministic = true;
  GridShape grid;
  GridCoord here;
};

// What the layers run with. References outlive the chunks.
struct LayerContext {
  Device& device;
  const Communicator& tp;
  StepState* state = nullptr;  // device memory
  Stream& tp_stream;           // traffic over tp that runs beside products
  Event tp_ready, tp_done;
  std::vector<Event> tp_steps{};  // by shard that is awaited
  int64_t tp_shards = 0;          // shards of activations that went beside a product so far
  StreamTimer tp_exposed{};       // what compute spends on traffic over tp, or waiting for it
};

// The data of one micro-batch, in device memory; n = BatchShape::tokens().
struct MicroBatch {
  TensorView tokens;          // [n] i32; read by the first virtual stage
  TensorView targets;         // [n] i32; read by the last virtual stage
  TensorView mask;            // [n] f32, 1 where the token's loss counts; last virtual stage
  TensorView positions;       // [n] i32
  int64_t sample_offset = 0;  // global sample of row 0 relative to the step's first (dropout)
  TensorView starts;  // [n] i32 or empty: the place in its row from which on a token attends: where
                      // its document starts. Empty: the whole row
  int64_t documents = 0, longest_document = 0;  // of all rows together, with `starts`
  TensorView losses;  // [n] f32 or empty: written with each token's loss; last virtual stage
};

// Told which layer is about to be used and whose weight gradient is complete for this micro-batch.
// Layer -1 is the embedding, layer `layers` of the model is the head with its norm.
class ChunkObserver {
 public:
  virtual ~ChunkObserver() = default;
  virtual void before_use(int64_t layer) = 0;
  virtual void gradient_ready(int64_t layer) = 0;
};

enum class Mode : uint8_t { train, evaluate };

struct Scratch;  // work memory shared by the chunks of a rank

class ChunkScratch {
 public:
  ChunkScratch(const ModelShape& model, const ChunkOptions& options, bool embeds, bool has_head,
               Arena& arena);
  ~ChunkScratch();
  // Fills constants (rotary frequencies); once, after construction on a real arena.
  void prepare(Stream& stream);
  Scratch& views() const { return *views_; }

 private:
  std::vector<float> frequencies_;
  std::unique_ptr<Scratch> views_;
};

class Chunk {
 public:
  // `embeds` and `has_head` say whether this is the first and the last virtual stage.
  Chunk(const ModelShape& model, const ChunkOptions& options, LayerRange layers, bool embeds,
        bool has_head, const ParameterStore& parameters);
  ~Chunk();
  Chunk(Chunk&&) noexcept;

  // `scratch` outlives the chunk.
  void take_stashes(int slots, Arena& arena, ChunkScratch& scratch);
  // Rows of the activations between stages: all tokens, or tokens / tp under sequence parallelism.
  int64_t rows() const;
  // [rows, hidden] compute type: the shape that travels between stages.
  Shape activation_shape() const;

  // Where a received activation must be put before `forward`. Empty on the first virtual stage.
  TensorView input(int slot) const;
  // Runs one micro-batch. `output` [rows, hidden] is written; on the last virtual stage it is
  // empty: loss and counted tokens are added to the step state, and in Mode::train the gradient of
  // the head (weights included) is made at once, so that logits never outlive the call.
  void forward(LayerContext& context, Mode mode, int slot, const MicroBatch& batch,
               TensorView output, ChunkObserver* observer);
  // `d_output` [rows, hidden]: gradient of the summed loss by the output; overwritten. Empty on the
  // last virtual stage. Returns the gradient by the input, [rows, hidden], in d_output's memory (or
  // in the slot's on the last stage); empty on the first virtual stage.
  TensorView backward(LayerContext& context, int slot, const MicroBatch& batch, TensorView d_output,
                      ChunkObserver* observer);
  LayerRange layers() const;
  bool embeds() const;
  bool has_head() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
