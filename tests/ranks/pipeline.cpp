// RANKS 1 2 3 4
// The executor: every schedule gives the losses and gradients of one rank that runs the
// micro-batches one after another, in exactly the order of its list, and tells layers when their
// gradient is done. Activations are larger than what shared memory transports buffer, so no send is
// ever buffered.
#include "trireme/parallel/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "support/model_harness.hpp"
#include "support/rank_test.hpp"
#include "trireme/base/error.hpp"
#include "trireme/parallel/gradient_sync.hpp"

namespace trireme::test {
namespace {

constexpr BatchShape kBatch{3, 16};  // 48 tokens of width 24 in f32: 4608 bytes

ModelShape nine_layers(bool llama) {
  ModelShape model = odd_model(llama, llama ? 0.0f : 0.1f);
  model.layers = 9;
  model.ffn = 44;
  model.max_sequence = kBatch.sequence;
  return model;
}

// Passes events on to the gradient sync and keeps them.
class Recorder final : public StepObserver {
 public:
  explicit Recorder(GradientSync& sync) : sync_(sync) {}
  void before_use(int64_t layer) override {
    used.push_back(layer);
    sync_.before_use(layer);
  }
  void gradient_ready(int64_t layer) override {
    ready.push_back(layer);
    sync_.gradient_ready(layer);
  }
  void all_gradients_ready() override {
    ++ends;
    ready_at_end = ready.size();
    sync_.all_gradients_ready();
  }
  std::vector<int64_t> used, ready;
  size_t ready_at_end = 0;
  int ends = 0;

 private:
  GradientSync& sync_;
};

struct Case {
  GridShape grid;
  int chunks = 1;
  int most_micro_batches = 1;
  bool sequence_parallel = false;
  std::string text() const { return fmt::format("{}, {} chunks", grid.text(), chunks); }
};

// One rank of a pipeline, set up as a run does it: a dry walk, then the memory.
class PipelineRank {
 public:
  PipelineRank(const ModelShape& model, const Case& c, const ProcessGrid& grid)
      : model_(model),
        case_(c),
        grid_(grid),
        table_(model, {c.grid, grid.here(), c.chunks, c.sequence_parallel, 4000}),
        shards_(table_, grid.dp().rank(), grid.dp().size(), 0),
        context_{device(), grid.tp(), nullptr, device().new_stream("tensor parallel"), {}, {}} {
    Arena dry = Arena::dry();
    build(dry);
    chunks_.clear();
    arena_.emplace(Arena::real(dry.high_water_bytes()));
    build(*arena_);
    EXPECT_EQ(arena_->used_bytes(), dry.used_bytes());
    scratch_->prepare(device().compute());
    for (size_t i = 0; i < table_.entries().size(); ++i) fill(static_cast<int>(i));
    sync_.emplace(*store_, shards_, grid, device());
    pipeline_.emplace(chunks_, *memory_, grid, context_);
  }

  // Runs `count` micro-batches of this dp rank; loss and tokens of the whole world.
  std::pair<double, double> run(Pass pass, int count) {
    const PipelineShape shape{case_.grid.pp, case_.chunks, count};
    const ActionList list = schedule_for(shape, grid_.here().pp, pass);
    const StepBatch batch = make_batch(count);
    store_->zero_gradients(device().compute());
    StepState values = {};
    values.seed = 5;
    values.step = 2;
    values.first_sample = 40;
    values.training = pass == Pass::train;
    set_step(device().compute(), state_, values);
    sync_->begin_step();
    Recorder recorder(*sync_);
    pipeline_->run(list, shape, batch, pass == Pass::train ? Mode::train : Mode::evaluate,
                   &recorder);
    EXPECT_EQ(pipeline_->executed(), list);
    check_events(recorder, pass);
    const StepState state = get_step(device().compute(), state_);
    return {world().sum(static_cast<double>(state.sums[0])),
            world().sum(static_cast<double>(state.sums[1]))};
  }

  const ParameterTable& table() const { return table_; }
  const ParameterStore& store() const { return *store_; }
  Pipeline& pipeline() { return *pipeline_; }

 private:
  void build(Arena& arena) {
    ChunkOptions options;
    options.batch = kBatch;
    options.sequence_parallel = case_.sequence_parallel;
    options.grid = case_.grid;
    options.here = grid_.here();
    const int stage = grid_.here().pp, pp = case_.grid.pp;
    store_.emplace(table_, model_.compute, arena);
    scratch_.emplace(model_, options, stage == 0, stage == pp - 1, arena);
    const auto ranges = layer_ranges(model_.layers, pp, case_.chunks, stage);
    const PipelineShape most{pp, case_.chunks, case_.most_micro_batches};
    BufferCounts counts;
    for (const Pass pass : {Pass::train, Pass::evaluate})
      counts = larger(counts, buffers_needed(schedule_for(most, stage, pass), most, stage));
    for (int chunk = 0; chunk < case_.chunks; ++chunk)
      chunks_.emplace_back(model_, options, ranges[static_cast<size_t>(chunk)],
                           most.is_first(stage, chunk), most.is_last(stage, chunk), *store_);
    memory_.emplace(chunks_, counts, model_.compute, *scratch_, arena);
    const int64_t words = static_cast<int64_t>(sizeof(StepState)) / 4;
    state_ = reinterpret_cast<StepState*>(arena.take({words}, DType::f32, "step state").data);
    context_.state = state_;
    tokens_ = arena.take({case_.most_micro_batches, 4, kBatch.tokens()}, DType::i32, "batch");
  }

  // Micro-batch i of dp rank d is number d * count + i of the global batch.
  StepBatch make_batch(int count) const {
    StepBatch batch;
    const int64_t n = kBatch.tokens();
    for (int i = 0; i < count; ++i) {
      const TensorView rows = tokens_.range(i * 4 * n, (i + 1) * 4 * n);
      MicroBatch mb;
      mb.tokens = rows.range(0, n);
      mb.targets = rows.range(n, 2 * n);
      mb.positions = rows.range(2 * n, 3 * n);
      mb.mask = rows.range(3 * n, 4 * n);
      mb.mask.dtype = DType::f32;
      const int64_t number = grid_.dp().rank() * count + i;
      mb.sample_offset = number * kBatch.micro;
      for (int64_t t = 0; t < n; ++t) {
        const auto u = static_cast<size_t>(t);
        const int64_t at = number * n + t;
        mb.tokens.host<int32_t>()[u] = static_cast<int32_t>((at * 17 + 3) % model_.vocab);
        mb.targets.host<int32_t>()[u] = static_cast<int32_t>((at * 29 + 11) % model_.vocab);
        mb.positions.host<int32_t>()[u] = static_cast<int32_t>(t % kBatch.sequence);
        // Micro-batches have very different numbers of counted tokens.
        mb.mask.host<float>()[u] = t % (number % 3 + 2) == 0 ? 1.0f : 0.0f;
      }
      batch.micro_batches.push_back(mb);
    }
    return batch;
  }

  void fill(int index) {
    const ParameterEntry& e = table_.entries()[static_cast<size_t>(index)];
    const auto view = store_->value(index).host<float>();
    const int64_t first = e.first_row * e.local.row_elements();
    for (int64_t i = 0; i < e.elements(); ++i)
      view[static_cast<size_t>(i)] = i < e.real_elements() ? test_weight(e.spec, first + i) : 0.0f;
  }

  void check_events(const Recorder& recorder, Pass pass) const {
    std::vector<int64_t> layers;
    for (const Chunk& chunk : chunks_) {
      if (chunk.embeds()) layers.push_back(-1);
      for (int64_t l = chunk.layers().first; l < chunk.layers().last; ++l) layers.push_back(l);
      if (chunk.has_head()) layers.push_back(model_.layers);
    }
    for (const int64_t layer : layers)
      EXPECT_TRUE(std::find(recorder.used.begin(), recorder.used.end(), layer) !=
                  recorder.used.end());
    EXPECT_EQ(recorder.ends, pass == Pass::train ? 1 : 0);
    if (pass == Pass::evaluate) layers.clear();
    std::vector<int64_t> ready = recorder.ready;
    std::sort(ready.begin(), ready.end());
    std::sort(layers.begin(), layers.end());
    EXPECT_EQ(ready, layers);
    EXPECT_EQ(recorder.ready_at_end, layers.size());
  }

  ModelShape model_;
  Case case_;
  const ProcessGrid& grid_;
  ParameterTable table_;
  ShardLayout shards_;
  LayerContext context_;
  std::optional<Arena> arena_;
  std::optional<ParameterStore> store_;
  std::optional<ChunkScratch> scratch_;
  std::vector<Chunk> chunks_;
  std::optional<PipelineMemory> memory_;
  StepState* state_ = nullptr;
  TensorView tokens_;
  std::optional<GradientSync> sync_;
  std::optional<Pipeline> pipeline_;
};

// A grid of this rank alone: the reference runs on every rank.
struct Alone {
  Communicator self = world().split(-1, 0, "alone");
  ProcessGrid grid{self, GridShape{}, 4, device()};
};

// Largest difference of this rank's gradients from the reference's, relative to the largest
// element.
double worst_difference(const PipelineRank& got, const PipelineRank& reference) {
  double worst = 0;
  for (size_t e = 0; e < got.table().entries().size(); ++e) {
    const ParameterEntry& entry = got.table().entries()[e];
    const auto mine = got.store().gradient(static_cast<int>(e)).host<float>();
    const auto right =
        reference.store().gradient(reference.table().find(entry.spec.name)).host<float>();
    const int64_t first = entry.first_row * entry.local.row_elements();
    // A key bias has an exactly zero gradient: there is only rounding to compare.
    double largest = 0.1;
    for (const float x : right) largest = std::max(largest, std::abs(static_cast<double>(x)));
    for (int64_t i = 0; i < entry.real_elements(); ++i) {
      const double difference = std::abs(static_cast<double>(mine[static_cast<size_t>(i)]) -
                                         right[static_cast<size_t>(first + i)]);
      worst = std::max(worst, difference / largest);
    }
  }
  return worst;
}

std::vector<Case> cases_of(int ranks) {
  std::vector<Case> cases = {{{1, 1, 1, ranks}, 1, 7, false}};
  if (ranks > 1) cases.push_back({{1, 1, 1, ranks}, 2, 7, false});
  if (ranks == 4) {
    cases.push_back({{1, 1, 2, 2}, 2, 5, false});
    cases.push_back({{2, 1, 1, 2}, 3, 5, false});
    cases.push_back({{2, 1, 1, 2}, 2, 5, true});
  }
  return cases;
}

TEST(Pipeline, EveryScheduleGivesTheResultOfOneRank) {
  for (const bool llama : {false, true})
    for (const Case& c : cases_of(world().size())) {
      const ModelShape model = nine_layers(llama);
      const ProcessGrid grid(world(), c.grid, model.kv_heads, device());
      const Alone alone;
      PipelineRank rank(model, c, grid);
      PipelineRank reference(model, {GridShape{}, 1, 7 * c.grid.dp, false}, alone.grid);
      for (const int count : {1, 2, c.most_micro_batches - 1, c.most_micro_batches}) {
        const std::string what =
            fmt::format("{}, llama {}, {} micro-batches", c.text(), llama, count);
        const auto [loss, tokens] = rank.run(Pass::train, count);
        const auto [all_losses, all_tokens] = reference.run(Pass::train, count * c.grid.dp);
        const double right = all_losses / world().size();
        EXPECT_NEAR(loss, right, 1e-5 * right) << what;
        EXPECT_EQ(tokens, all_tokens / world().size()) << what;
        EXPECT_LE(worst_difference(rank, reference), 2e-5) << what;
        const auto [evaluated, counted] = rank.run(Pass::evaluate, count);
        const auto [all_evaluated, all_counted] = reference.run(Pass::evaluate, count * c.grid.dp);
        EXPECT_NEAR(evaluated, all_evaluated / world().size(), 1e-5 * evaluated) << what;
        EXPECT_EQ(counted, all_counted / world().size()) << what;
      }
    }
}

TEST(Pipeline, AnotherListsMemoryIsRefused) {
  const Case c{{1, 1, 1, world().size()}, 1, 1, false};
  const ModelShape model = nine_layers(true);
  const ProcessGrid grid(world(), c.grid, model.kv_heads, device());
  PipelineRank rank(model, c, grid);
  const PipelineShape shape{c.grid.pp, 1, 2};
  const ActionList list = schedule_for(shape, grid.here().pp, Pass::train);
  EXPECT_THROW(rank.pipeline().run(list, shape, {}, Mode::train, nullptr), Error);
  StepBatch two;
  two.micro_batches.resize(2);
  // Two micro-batches in flight were not planned; the last stage never has more than one.
  if (grid.last_stage()) return;
  EXPECT_THROW(rank.pipeline().run(list, shape, two, Mode::train, nullptr), Error);
}

}  // namespace
}  // namespace trireme::test
