#include "trireme/parallel/generator.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace trireme {
namespace {

int64_t most_rows(const GeneratorOptions& options) {
  return std::max(options.sequences, std::min(options.rows, options.capacity));
}

DecoderOptions decoder_options(const GridShape& grid, const GridCoord& here,
                               const GeneratorOptions& options) {
  return {grid, here, options.sequences, options.capacity, most_rows(options)};
}

// Tokens of a prompt's next pass, at most `n`. The vendor's attention builds a plan for every
// length of a first pass, which takes longer than the pass: powers of two need few.
int64_t piece_of(int64_t first, int64_t n) {
  return first > 0 ? n : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}

size_t planned(const ModelShape& model, const ProcessGrid& grid, const GeneratorOptions& options) {
  Arena dry = Arena::dry();
  { const GeneratorMemory walk(model, grid.shape(), grid.here(), options, dry); }
  return dry.high_water_bytes();
}

}  // namespace

GeneratorMemory::GeneratorMemory(const ModelShape& model, const GridShape& grid,
                                 const GridCoord& here, const GeneratorOptions& options,
                                 Arena& arena)
    : table(model, {grid, here}),
      store(table, model.compute, arena, ParameterUse::inference),
      decoder(model, decoder_options(grid, here, options),
              layer_ranges(model.layers, grid.pp, 1, here.pp).front(), here.pp == 0,
              here.pp == grid.pp - 1, store, arena) {
  for (TensorView* view : {&tokens, &positions, &rows})
    *view = arena.take({most_rows(options)}, DType::i32, "batch");
  if (here.pp == grid.pp - 1)
    gathered = arena.take({grid.tp, options.sequences, vocab_rows(model.vocab, grid.tp)},
                          DType::f32, "logits");
}

Generator::Generator(const ModelShape& model, const ProcessGrid& grid, Device& device,
                     const GeneratorOptions& options)
    : model_(model),
      grid_(grid),
      device_(device),
      options_(options),
      arena_(Arena::dry()),
      context_{device, grid.tp(), nullptr, device.new_stream("tensor parallel"), {}, {}} {
  const size_t bytes = planned(model, grid, options);
  const size_t free = device.free_bytes();
  grid.world().require_all(
      bytes <= free, ExitCode::bad_config,
      fmt::format("rank {} needs {:.2f} GiB but {:.2f} GiB are free: raise tp or pp, or generate "
                  "fewer or shorter sequences at a time",
                  grid.world().rank(), static_cast<double>(bytes) / (1 << 30),
                  static_cast<double>(free) / (1 << 30)));
  arena_ = Arena::real(bytes);
  memory_ = std::make_unique<GeneratorMemory>(model, grid.shape(), grid.here(), options, arena_);
  memory_->decoder.prepare(device.compute());
}

void Generator::upload(std::span<const int32_t> tokens, std::span<const int32_t> positions,
                       std::span<const int32_t> rows) {
  Stream& stream = device_.compute();
  const auto n = static_cast<int64_t>(tokens.size());
  copy_to_device(stream, std::as_bytes(tokens), memory_->tokens.range(0, n));
  copy_to_device(stream, std::as_bytes(positions), memory_->positions.range(0, n));
  copy_to_device(stream, std::as_bytes(rows), memory_->rows.range(0, n));
  stream.synchronize();
}

// Runs the uploaded tokens through the stages. Logits on the last one, else empty.
TensorView Generator::pass(int64_t n, int64_t sequence, int64_t first) {
  Stream& stream = device_.compute();
  using Direction = Transfer::Direction;
  if (!grid_.first_stage()) {
    const Communicator& edge = grid_.to_previous().activations;
    const Transfer in{Direction::receive, 1 - edge.rank(), memory_->decoder.input(n)};
    edge.exchange(stream, {&in, 1});
  }
  const TensorView result = memory_->decoder.forward(
      context_, {memory_->tokens.range(0, n), memory_->positions.range(0, n),
                 memory_->rows.range(0, n), sequence, first});
  if (grid_.last_stage()) return result;
  const Communicator& edge = grid_.to_next().activations;
  const Transfer out{Direction::send, 1 - edge.rank(), result};
  edge.exchange(stream, {&out, 1});
  return {};
}

// Tokens from the logits of the last stage, on all ranks. `positions` are those of the tokens that
// are drawn.
std::vector<int32_t> Generator::draw(TensorView logits, std::span<const uint64_t> numbers,
                                     std::span<const int64_t> positions) {
  Stream& stream = device_.compute();
  const auto n = static_cast<int64_t>(numbers.size());
  std::vector<int32_t> tokens(numbers.size());
  if (grid_.last_stage()) {
    const int64_t ranks = grid_.tp().size(), width = logits.shape[1];
    const TensorView whole = memory_->gathered.range(0, ranks * n * width);
    grid_.tp().all_gather(stream, logits, whole);
    std::vector<float> values(static_cast<size_t>(ranks * n * width));
    copy_to_host(stream, whole, std::as_writable_bytes(std::span(values)));
    stream.synchronize();
    std::vector<float> row(static_cast<size_t>(model_.vocab));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t r = 0; r < ranks; ++r) {
        const int64_t first = std::min(model_.vocab, r * width);
        const int64_t count = std::min(width, model_.vocab - first);  // the rest is padding
        std::copy_n(values.begin() + (r * n + i) * width, count, row.begin() + first);
      }
      const auto at = static_cast<size_t>(i);
      tokens[at] =
          draw_token(row, options_.sampling, numbers[at], static_cast<uint64_t>(positions[at]));
    }
  }
  grid_.pp().broadcast(std::as_writable_bytes(std::span(tokens)), grid_.pp().size() - 1);
  return tokens;
}

// Fills the cache with a prompt and draws the token behind it.
int32_t Generator::take_prompt(const Prompt& prompt, int64_t sequence) {
  const auto length = static_cast<int64_t>(prompt.tokens.size());
  std::vector<int32_t> positions(prompt.tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<int32_t> rows(prompt.tokens.size());
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(sequence * options_.capacity));
  TensorView logits;
  for (int64_t first = 0, n = 0; first < length; first += n) {
    n = piece_of(first, std::min(most_rows(options_), length - first));
    const auto at = static_cast<size_t>(first), count = static_cast<size_t>(n);
    upload(std::span(prompt.tokens).subspan(at, count), std::span(positions).subspan(at, count),
           std::span(rows).subspan(at, count));
    logits = pass(n, sequence, first);
  }
  return draw(logits, {&prompt.number, 1}, {&length, 1}).front();
}

// One more token of each sequence.
void Generator::step(std::span<Active> active, std::span<const Prompt> prompts) {
  std::vector<int32_t> tokens, positions, rows;
  std::vector<uint64_t> numbers;
  std::vector<int64_t> next;
  for (const Active& a : active) {
    tokens.push_back(a.token);
    positions.push_back(static_cast<int32_t>(a.position));
    rows.push_back(static_cast<int32_t>(a.sequence * options_.capacity + a.position));
    numbers.push_back(prompts[a.prompt].number);
    next.push_back(a.position + 1);
  }
  upload(tokens, positions, rows);
  const std::vector<int32_t> drawn = draw(pass(std::ssize(active), 0, -1), numbers, next);
  for (size_t i = 0; i < active.size(); ++i) {
    active[i].position += 1;
    active[i].token = drawn[i];
  }
}

std::vector<Completion> Generator::run(std::span<const Prompt> prompts, const OnToken& on_token) {
  std::vector<Completion> results(prompts.size());
  std::vector<int64_t> free(static_cast<size_t>(options_.sequences));
  std::iota(free.rbegin(), free.rend(), 0);
  std::vector<Active> active;
  // Takes the token in; true where the sequence goes on.
  const auto goes_on = [&](const Active& a) {
    Completion& result = results[a.prompt];
    result.ending = Ending::stop;
    if (options_.stop == a.token) return false;
    result.tokens.push_back(a.token);
    if (on_token) on_token(a.prompt, a.token);
    result.ending = Ending::max_tokens;
    if (std::ssize(result.tokens) >= options_.max_tokens) return false;
    result.ending = Ending::capacity;
    return a.position + 1 < options_.capacity;
  };
  const auto sweep = [&] {
    std::erase_if(active, [&](const Active& a) {
      if (goes_on(a)) return false;
      free.push_back(a.sequence);
      return true;
    });
  };
  for (size_t next = 0; next < prompts.size() || !active.empty();) {
    while (next < prompts.size() && !free.empty()) {
      const auto length = static_cast<int64_t>(prompts[next].tokens.size());
      require(length > 0 && length < options_.capacity, ExitCode::internal,
              "prompt {} has {} tokens, the cache takes {}", next, length, options_.capacity);
      Active a{next, free.back(), length, take_prompt(prompts[next], free.back())};
      ++next;
      if (!goes_on(a)) continue;
      free.pop_back();
      active.push_back(a);
    }
    if (active.empty()) continue;
    step(active, prompts);
    sweep();
  }
  return results;
}

}  // namespace trireme
