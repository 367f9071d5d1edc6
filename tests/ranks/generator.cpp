// RANKS 1 2 4
// Generation with a cache: the logits are those of training's forward pass, and every layout makes
// the same tokens, drawn or not, whatever else is generated beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/model_harness.hpp"
#include "support/rank_test.hpp"
#include "trireme/parallel/generator.hpp"

namespace trireme::test {
namespace {

void fill_weights(const ParameterStore& store) {
  const auto& entries = store.table().entries();
  for (size_t k = 0; k < entries.size(); ++k) {
    const ParameterEntry& e = entries[k];
    const auto view = store.value(static_cast<int>(k)).host<float>();
    const int64_t first = e.first_row * e.local.row_elements();
    for (int64_t i = 0; i < e.elements(); ++i)
      view[static_cast<size_t>(i)] = i < e.real_elements() ? test_weight(e.spec, first + i) : 0.0f;
  }
}

// One stage with everything, split over `tp`.
class WholeDecoder {
 public:
  static constexpr int64_t kSequences = 3, kCapacity = 11;
  WholeDecoder(const ModelShape& model, const Communicator& tp, Device& device)
      : vocab_(model.vocab),
        tp_(tp),
        device_(device),
        options_{{tp.size(), 1, 1, 1}, {tp.rank(), 0, 0, 0}, kSequences, kCapacity, 10},
        table_(model, {options_.grid, options_.here}),
        arena_(sized(model)),
        store_(table_, DType::f32, arena_, ParameterUse::inference),
        decoder_(model, options_, {0, model.layers}, true, true, store_, arena_),
        context_{device, tp, nullptr, device.new_stream("tensor parallel"), {}, {}} {
    decoder_.prepare(device.compute());
    fill_weights(store_);
  }

  // Whole logits of the last token of consecutive ones, or of one token of each sequence.
  std::vector<std::vector<float>> run(std::vector<int32_t> tokens, std::vector<int32_t> positions,
                                      std::vector<int32_t> sequences, int64_t first) {
    std::vector<int32_t> rows;
    for (size_t i = 0; i < tokens.size(); ++i)
      rows.push_back(sequences[i] * static_cast<int32_t>(kCapacity) + positions[i]);
    const auto view = [](std::vector<int32_t>& x) {
      return TensorView{
          reinterpret_cast<std::byte*>(x.data()), {static_cast<int64_t>(x.size())}, DType::i32};
    };
    const TensorView mine = decoder_.forward(
        context_, {view(tokens), view(positions), view(rows), sequences[0], first});
    const int64_t n = mine.shape[0], width = mine.shape[1];
    std::vector<float> whole(static_cast<size_t>(n * width * tp_.size()));
    tp_.all_gather(device_.compute(), mine,
                   {reinterpret_cast<std::byte*>(whole.data()), {n * width * tp_.size()}});
    std::vector<std::vector<float>> logits(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t v = 0; v < vocab_; ++v)
        logits[static_cast<size_t>(i)].push_back(
            whole[static_cast<size_t>((v / width * n + i) * width + v % width)]);
    return logits;
  }

 private:
  Arena sized(const ModelShape& model) const {
    Arena dry = Arena::dry();
    const ParameterStore store(table_, DType::f32, dry, ParameterUse::inference);
    const Decoder decoder(model, options_, {0, model.layers}, true, true, store, dry);
    return Arena::real(dry.high_water_bytes());
  }
  int64_t vocab_;
  const Communicator& tp_;
  Device& device_;
  DecoderOptions options_;
  ParameterTable table_;
  Arena arena_;
  ParameterStore store_;
  Decoder decoder_;
  LayerContext context_;
};

double loss_of(const std::vector<float>& logits, int32_t target) {
  const double largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return std::log(sum) + largest - static_cast<double>(logits[static_cast<size_t>(target)]);
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, static_cast<double>(std::abs(a[i] - b[i])));
  return a.size() == b.size() ? largest : 1e9;
}

// Two sequences of ten: each prefix as one prompt, and the same tokens one by one, side by side in
// cache places 2 and 0. The harness computes the loss of the same tokens as training does.
TEST(Decoder, LogitsAreThoseOfTraining) {
  Communicator tp = world().split(0, world().rank(), "tp");
  tp.connect(device());
  const Communicator alone = world().split(world().rank(), 0, "alone");
  for (const bool llama : {false, true}) {
    const ModelShape model = odd_model(llama);
    ChunkOptions options;
    options.batch = {2, 10};
    ModelHarness training(model, options, device(), alone);
    const double want = training.run(Mode::evaluate);
    WholeDecoder decoder(model, tp, device());
    const auto token = [&](int32_t s, int32_t i) {
      return static_cast<int32_t>(((s * 10 + i) * 17 + 3) % model.vocab);
    };
    std::vector<std::vector<float>> whole;  // by sequence and position
    for (int32_t s = 0; s < 2; ++s) {
      for (int32_t last = 0; last < 10; ++last) {
        std::vector<int32_t> tokens, positions(static_cast<size_t>(last) + 1);
        std::iota(positions.begin(), positions.end(), 0);
        for (const int32_t i : positions) tokens.push_back(token(s, i));
        whole.push_back(
            decoder.run(tokens, positions, std::vector<int32_t>(tokens.size(), 1), 0).front());
      }
    }
    double loss = 0;
    for (int32_t i = 0; i < 20; ++i)
      if (i % 5 != 2)
        loss += loss_of(whole[static_cast<size_t>(i)],
                        static_cast<int32_t>((i * 29 + 11) % model.vocab));
    EXPECT_NEAR(loss / want, 1, 2e-6);
    for (int32_t i = 0; i < 10; ++i) {
      const auto stepped = decoder.run({token(0, i), token(1, i)}, {i, i}, {2, 0}, -1);
      for (size_t s = 0; s < 2; ++s)
        EXPECT_LT(difference(stepped[s], whole[s * 10 + static_cast<size_t>(i)]), 2e-5)
            << "sequence " << s << " position " << i;
    }
    // A prompt in two pieces.
    decoder.run({token(0, 0), token(0, 1), token(0, 2)}, {0, 1, 2}, {1, 1, 1}, 0);
    const auto rest = decoder.run({token(0, 3), token(0, 4)}, {3, 4}, {1, 1}, 3);
    EXPECT_LT(difference(rest.front(), whole[4]), 2e-5);
  }
}

std::vector<Prompt> prompts() {
  return {
      {0, {3, 20, 37}}, {1, {11}}, {2, {5, 6, 7, 8, 9, 10, 11, 12}}, {3, {60, 1}}, {4, {3, 20}}};
}

std::vector<Completion> generate(const Communicator& group, const GridShape& shape,
                                 const ModelShape& model, GeneratorOptions options,
                                 const Generator::OnToken& on_token = {}) {
  const ProcessGrid grid(group, shape, model.kv_heads, device());
  Generator generator(model, grid, device(), options);
  fill_weights(generator.parameters());
  return generator.run(prompts(), on_token);
}

std::vector<std::vector<int32_t>> tokens_of(const std::vector<Completion>& all) {
  std::vector<std::vector<int32_t>> tokens;
  for (const Completion& c : all) tokens.push_back(c.tokens);
  return tokens;
}

GeneratorOptions usual(double temperature) {
  GeneratorOptions options;
  options.capacity = 40;
  options.sequences = 2;
  options.rows = 5;
  options.max_tokens = 6;
  options.sampling = {.temperature = temperature, .top_k = 20, .top_p = 0.9, .seed = 7};
  return options;
}

ModelShape long_model(bool llama) {
  ModelShape model = odd_model(llama);
  model.max_sequence = 40;
  model.layers = 4;
  return model;
}

TEST(Generator, EveryLayoutMakesTheSameTokens) {
  const Communicator alone = world().split(world().rank(), 0, "alone");
  std::vector<GridShape> shapes = {{1, 1, 1, 1}};
  if (world().size() == 2) shapes = {{2, 1, 1, 1}, {1, 1, 1, 2}};
  if (world().size() == 4) shapes = {{4, 1, 1, 1}, {2, 1, 1, 2}, {1, 1, 1, 4}};
  const std::vector<std::pair<bool, double>> ways = {{false, 1.5}, {true, 0.0}, {true, 1.5}};
  for (size_t way = 0; way < ways.size(); ++way) {
    const auto [llama, temperature] = ways[way];
    const ModelShape model = long_model(llama);
    const auto want = tokens_of(generate(alone, {1, 1, 1, 1}, model, usual(temperature)));
    for (const GridShape& shape : shapes)
      EXPECT_EQ(tokens_of(generate(world(), shape, model, usual(temperature))), want)
          << shape.text() << (llama ? " llama " : " gpt2 ") << temperature;
    if (way + 1 < ways.size()) continue;
    GeneratorOptions options = usual(temperature);  // all together, prompts in one piece
    options.sequences = 5;
    options.rows = 512;
    EXPECT_EQ(tokens_of(generate(world(), shapes[0], model, options)), want);
  }
}

TEST(Generator, EndsAsAsked) {
  if (world().size() > 1) GTEST_SKIP() << "one rank is enough";
  const ModelShape model = long_model(true);
  GeneratorOptions options = usual(0);
  options.max_tokens = 20;
  const auto free = generate(world(), {1, 1, 1, 1}, model, options);
  for (const Completion& c : free) {
    EXPECT_EQ(c.tokens.size(), 20u);
    EXPECT_EQ(c.ending, Ending::max_tokens);
  }
  options.stop = free[0].tokens[4];
  std::vector<std::vector<int32_t>> seen(5);
  const auto stopped = generate(world(), {1, 1, 1, 1}, model, options,
                                [&](size_t prompt, int32_t t) { seen[prompt].push_back(t); });
  EXPECT_EQ(seen, tokens_of(stopped));
  for (size_t i = 0; i < free.size(); ++i) {
    const auto end = std::ranges::find(free[i].tokens, *options.stop);
    EXPECT_EQ(stopped[i].tokens, std::vector<int32_t>(free[i].tokens.begin(), end)) << i;
    EXPECT_EQ(stopped[i].ending, end == free[i].tokens.end() ? Ending::max_tokens : Ending::stop);
  }
  options.stop.reset();
  options.capacity = 12;
  const auto full = generate(world(), {1, 1, 1, 1}, model, options);
  EXPECT_EQ(full[0].tokens.size(), 9u);
  EXPECT_EQ(full[2].tokens.size(), 4u);
  EXPECT_EQ(full[2].ending, Ending::capacity);
  for (size_t i = 0; i < full.size(); ++i)
    EXPECT_TRUE(std::equal(full[i].tokens.begin(), full[i].tokens.end(), free[i].tokens.begin()));
  options.capacity = 8;
  EXPECT_THROW(generate(world(), {1, 1, 1, 1}, model, options), Error);
}

}  // namespace
}  // namespace trireme::test
