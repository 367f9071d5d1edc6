// RANKS 1 2 4
// Imported models of every family give the logits that transformers gave, over tp 1, 2 and 4 (where
// KV heads are copied). The models and their golden logits were made by tools/hf_models.py.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/scratch.hpp"
#include "support/rank_test.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/convert/convert.hpp"

namespace trireme::test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(TRIREME_GOLDEN) / "hf";

// A folder that all ranks share.
class SharedFolder {
 public:
  SharedFolder() {
    const std::string mine = fmt::format("trireme_hf_logits_{}", ::getpid());
    path_ = fs::temp_directory_path() / world().broadcast(mine, 0);
    if (world().rank() == 0) fs::create_directories(path_);
    world().barrier();
  }
  ~SharedFolder() {
    std::error_code ignored;
    world().barrier();
    if (world().rank() == 0) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The model of a checkpoint on this tp rank, with memory for one evaluation.
class Evaluated {
 public:
  Evaluated(const CheckpointContext& context, const fs::path& checkpoint, const ModelShape& model,
            const ChunkOptions& options, const Communicator& tp)
      : model_(model),
        options_(options),
        table_(model, {options.grid, options.here, 1, false, 500}) {
    Arena dry = Arena::dry();
    take(dry);
    arena_ = Arena::real(dry.high_water_bytes());
    take(arena_);
    scratch_->prepare(device().compute());
    load_checkpoint(context, checkpoint, store_->value_slices("weights/"));
    context_ = std::make_unique<LayerContext>(
        LayerContext{device(), tp, state_, device().new_stream("tensor parallel"), {}, {}});
  }

  // This rank's columns of the logits, [tokens, columns].
  Matrix logits(const std::vector<int32_t>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      batch_.tokens.host<int32_t>()[i] = tokens[i];
      batch_.targets.host<int32_t>()[i] = 0;
      batch_.mask.host<float>()[i] = 1;
      batch_.positions.host<int32_t>()[i] =
          static_cast<int32_t>(i) % static_cast<int32_t>(options_.batch.sequence);
    }
    set_step(device().compute(), state_, {});
    chunk_->forward(*context_, Mode::evaluate, 0, batch_, {}, nullptr);
    device().compute().synchronize();
    return scratch_->views().logits;
  }
  const ParameterEntry& head() const {
    return table_.entries()[static_cast<size_t>(
        table_.find(model_.tied ? "embedding.tokens" : "head.weight"))];
  }

 private:
  void take(Arena& arena) {
    store_ = std::make_unique<ParameterStore>(table_, DType::f32, arena);
    scratch_ = std::make_unique<ChunkScratch>(model_, options_, true, true, arena);
    chunk_ = std::make_unique<Chunk>(model_, options_, LayerRange{0, model_.layers}, true, true,
                                     *store_);
    chunk_->take_stashes(1, arena, *scratch_);
    const int64_t n = options_.batch.tokens();
    batch_.tokens = arena.take({n}, DType::i32, "batch");
    batch_.targets = arena.take({n}, DType::i32, "batch");
    batch_.mask = arena.take({n}, DType::f32, "batch");
    batch_.positions = arena.take({n}, DType::i32, "batch");
    state_ = reinterpret_cast<StepState*>(
        arena.take({static_cast<int64_t>(sizeof(StepState)) / 4}, DType::f32, "step").data);
  }

  ModelShape model_;
  ChunkOptions options_;
  ParameterTable table_;
  Arena arena_ = Arena::dry();
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<ChunkScratch> scratch_;
  std::unique_ptr<Chunk> chunk_;
  std::unique_ptr<LayerContext> context_;
  MicroBatch batch_;
  StepState* state_ = nullptr;
};

std::vector<float> golden_logits(const fs::path& directory, size_t count) {
  std::vector<float> values(count);
  std::ifstream file(directory / "logits.f32", std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * 4));
  EXPECT_EQ(file.gcount(), static_cast<std::streamsize>(count * 4));
  return values;
}

// Largest difference over the columns of this rank.
double worst_difference(Evaluated& model, const nlohmann::json& golden, const fs::path& directory) {
  std::vector<int32_t> tokens;
  for (const auto& row : golden["tokens"])
    for (const auto& token : row) tokens.push_back(token);
  const auto vocab = golden["vocab"].get<size_t>();
  const std::vector<float> want = golden_logits(directory, tokens.size() * vocab);
  const Matrix have = model.logits(tokens);
  const ParameterEntry& head = model.head();
  double worst = 0;
  for (size_t t = 0; t < tokens.size(); ++t)
    for (int64_t c = 0; c < head.rows; ++c) {
      const auto* row =
          reinterpret_cast<const float*>(have.data) + static_cast<int64_t>(t) * have.stride;
      const float wanted = want[t * vocab + static_cast<size_t>(head.first_row + c)];
      worst = std::max(worst, std::fabs(double{row[c]} - wanted));
    }
  return worst;
}

TEST(HuggingFaceLogits, EveryFamilyOnEveryTp) {
  const SharedFolder folder;
  const Log log(1);
  const CheckpointContext context{world(), device().compute(), log};
  Communicator tp = world().split(0, world().rank(), "tp");
  tp.connect(device());
  for (const char* name :
       {"gpt2", "gpt2_untied", "llama2", "llama31", "llama32", "mistral", "qwen2", "qwen3"}) {
    const fs::path checkpoint = folder.path() / (std::string(name) + ".h5");
    const ConvertReport report = import_hugging_face(context, {kGolden / name, checkpoint, 0});
    const Deck deck = read_deck(report.deck.string(), {});
    ModelShape model = model_shape(deck.settings);
    EXPECT_EQ(model.parameters(), report.parameters);
    std::ifstream file(kGolden / name / "golden.json");
    const nlohmann::json golden = nlohmann::json::parse(file);
    ChunkOptions options;
    options.batch = {static_cast<int64_t>(golden["tokens"].size()),
                     static_cast<int64_t>(golden["tokens"][0].size())};
    options.grid = {tp.size(), 1, 1, 1};
    options.here = {tp.rank(), 0, 0, 0};
    model.compute = DType::f32;
    Evaluated evaluated(context, checkpoint, model, options, tp);
    const double worst = world().max(worst_difference(evaluated, golden, kGolden / name));
    if (world().rank() == 0)
      fmt::print("{:12} tp {}: logits within {:.1e} of transformers\n", name, tp.size(), worst);
    EXPECT_LT(worst, 1e-5) << name;
  }
}

}  // namespace
}  // namespace trireme::test
