// Generation over tp and pp: prompts in, tokens out, some sequences at a time.
//
// Every step makes one token for each sequence that is under way; a sequence that ends makes room
// for the next prompt. The last stage draws, all ranks of the replica learn the tokens. What is
// drawn depends on the logits, the seed, the number of the prompt and the position, not on the
// layout or the company.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/process_grid.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/model/sampling.hpp"

namespace trireme {

struct GeneratorOptions {
  int64_t capacity = 1;         // most tokens of a prompt and what follows it
  int64_t sequences = 1;        // at a time
  int64_t rows = 512;           // tokens of a prompt that are taken in one pass
  int64_t max_tokens = 1;       // new ones of a prompt
  std::optional<int32_t> stop;  // ends a sequence and is not part of it
  Sampling sampling;
};

struct Prompt {
  uint64_t number = 0;  // address of its random draws
  std::vector<int32_t> tokens;
};

enum class Ending : uint8_t { stop, max_tokens, capacity };

struct Completion {
  std::vector<int32_t> tokens;  // new ones
  Ending ending = Ending::max_tokens;
};

// Everything of a rank that takes memory.
struct GeneratorMemory {
  GeneratorMemory(const ModelShape& model, const GridShape& grid, const GridCoord& here,
                  const GeneratorOptions& options, Arena& arena);
  GeneratorMemory(const GeneratorMemory&) = delete;
  GeneratorMemory& operator=(const GeneratorMemory&) = delete;

  ParameterTable table;
  ParameterStore store;
  Decoder decoder;
  TensorView tokens, positions, rows;  // [most tokens of a pass] i32
  TensorView gathered;                 // [tp, sequences, vocabulary rows] f32; last stage
};

class Generator {
 public:
  // Called on every rank with the place of a prompt in the list and a new token of it.
  using OnToken = std::function<void(size_t prompt, int32_t token)>;

  // Collective over the grid, whose cp is 1; dp replicas work apart. Weights are then loaded into
  // `parameters()`. Throws Error(bad_config) where memory does not suffice.
  Generator(const ModelShape& model, const ProcessGrid& grid, Device& device,
            const GeneratorOptions& options);

  const ParameterStore& parameters() const { return memory_->store; }
  // Collective over this replica (tp x pp), with the same prompts on each rank. Prompts are not
  // empty and shorter than the capacity. Throws Error(internal) otherwise, and as `draw_token`.
  std::vector<Completion> run(std::span<const Prompt> prompts, const OnToken& on_token);
  size_t planned_bytes() const { return arena_.high_water_bytes(); }

 private:
  struct Active {
    size_t prompt = 0;     // place in the list
    int64_t sequence = 0;  // place in the cache
    int64_t position = 0;  // of the next token to be taken in
    int32_t token = 0;     // that token
  };
  void upload(std::span<const int32_t> tokens, std::span<const int32_t> positions,
              std::span<const int32_t> rows);
  TensorView pass(int64_t n, int64_t sequence, int64_t first);
  std::vector<int32_t> draw(TensorView logits, std::span<const uint64_t> numbers,
                            std::span<const int64_t> positions);
  int32_t take_prompt(const Prompt& prompt, int64_t sequence);
  void step(std::span<Active> active, std::span<const Prompt> prompts);

  ModelShape model_;
  const ProcessGrid& grid_;
  Device& device_;
  GeneratorOptions options_;
  Arena arena_;
  std::unique_ptr<GeneratorMemory> memory_;
  LayerContext context_;
};

}  // namespace trireme
