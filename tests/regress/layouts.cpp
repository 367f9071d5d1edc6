// Another layout gives the same answer: from the same imported weights, losses, gradient norms,
// gradients and weights of every layout against those of one rank, with odd sizes, both families,
// dropout on and off, clipping at half the norm. Prints one table. TRIREME_LAYOUT_COMPUTE (f32,
// bf16) sets the type; TRIREME_LAYOUT_ROWS, a regular expression, picks layouts by their names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "support/run_program.hpp"

namespace trireme::test {
namespace {

struct Layout {
  const char* name;
  int ranks;
  const char* words;
};

const std::vector<Layout> kLayouts = {
    {"micro-batch 1", 1, "--batch.micro=1"},
    {"micro-batch 4", 1, "--batch.micro=4"},
    {"recompute selective", 1, "--model.recompute=selective"},
    {"recompute full", 1, "--model.recompute=full"},
    {"tp 2", 2, "--grid.tp=2"},
    {"tp 4", 4, "--grid.tp=4"},
    {"tp 2, sequence parallel", 2,
     "--grid.tp=2 --grid.sequence_parallel=true --grid.tp_overlap=off"},
    {"tp 4, sequence parallel", 4,
     "--grid.tp=4 --grid.sequence_parallel=true --grid.tp_overlap=off"},
    {"tp 2, overlapped", 2, "--grid.tp=2 --grid.sequence_parallel=true --grid.tp_overlap=on"},
    {"tp 4, overlapped", 4,
     "--grid.tp=4 --grid.sequence_parallel=true --grid.tp_overlap=on --model.recompute=full"},
    {"pp 2", 2, "--grid.pp=2"},
    {"pp 4", 4, "--grid.pp=4"},
    {"pp 2, interleaved", 2, "--grid.pp=2 --grid.virtual_stages=2"},
    {"dp 2", 2, "--grid.dp=2"},
    {"dp 2, not sharded", 2, "--grid.dp=2 --optimizer.zero=0"},
    {"dp 4", 4, "--grid.dp=4"},
    {"tp 2 x pp 2", 4, "--grid.tp=2 --grid.pp=2"},
    {"tp 2 x dp 2", 4, "--grid.tp=2 --grid.dp=2"},
    {"pp 2 x dp 2", 4, "--grid.pp=2 --grid.dp=2"},
    {"pp 2 x dp 2, not sharded", 4, "--grid.pp=2 --grid.dp=2 --optimizer.zero=0"},
    {"tp 2 x pp 2, all together", 4,
     "--grid.tp=2 --grid.pp=2 --grid.virtual_stages=2 --grid.sequence_parallel=true "
     "--grid.tp_overlap=on --model.recompute=full --model.recompute_layers=1 --batch.micro=1"},
    {"tp 2 x dp 2, all together", 4,
     "--grid.tp=2 --grid.dp=2 --grid.sequence_parallel=true --model.recompute=selective "
     "--batch.micro=1"},
};
// With dropout the masks must agree as well: the layouts that cut rows, heads or samples.
const std::vector<std::string> kWithDropout = {"micro-batch 1",
                                               "recompute selective",
                                               "recompute full",
                                               "tp 4",
                                               "tp 2, sequence parallel",
                                               "pp 2, interleaved",
                                               "tp 4, overlapped",
                                               "dp 4",
                                               "tp 2 x pp 2, all together",
                                               "tp 2 x dp 2, all together"};

// Norms of q and k are held by every tp rank, whose heads each give a part of their gradient; at tp
// 4 KV heads are copied.
const std::vector<std::string> kWithHeadNorms = {
    "recompute selective",     "recompute full", "tp 2", "tp 4",       "tp 4, overlapped",
    "tp 2, sequence parallel", "pp 2",           "dp 2", "tp 2 x pp 2"};

enum class Model { gpt2, llama, qwen };
const char* name_of(Model model) {
  return model == Model::gpt2 ? "gpt2" : model == Model::llama ? "llama" : "qwen";
}

bool picked(const Layout& layout) {
  const char* rows = std::getenv("TRIREME_LAYOUT_ROWS");
  return rows == nullptr || std::regex_search(layout.name, std::regex(rows));
}

// Largest relative differences from one rank. In bf16 the norm of a step is that of weights that
// have drifted apart by their rounding since the first.
struct Limits {
  double first, loss, norm, gradient, weight;
};

std::string compute_type() {
  const char* type = std::getenv("TRIREME_LAYOUT_COMPUTE");
  return type == nullptr ? "f32" : type;
}

Limits limits() {
  if (compute_type() == "bf16") return {1e-2, 1e-2, 5e-2, 1e-1, 1e-2};
  return {1e-5, 1e-4, 1e-4, 1e-5, 1e-5};
}

struct Outcome {
  std::vector<MetricsLine> metrics;
  std::map<std::string, std::vector<float>> gradients, weights;
  double seconds = 0;
};

class LayoutTest : public ::testing::Test {
 protected:
  LayoutTest() : folder_("layouts") { write_dataset(folder_ / "data", 61, 200); }

  void SetUp() override {
    if (std::getenv("TRIREME_NEEDS_GPU") != nullptr && run_command("nvidia-smi -L").exit_code != 0)
      GTEST_SKIP() << "no GPU here";
  }

  void write_deck(Model model) {
    const bool llama = model != Model::gpt2;
    std::ofstream deck(folder_ / "deck.ini");
    deck << "[run]\nsteps = 20\nseed = 7\n"
         << "[model]\nfamily = " << (llama ? "llama" : "gpt2")
         << "\nlayers = 5\nhidden = 24\nheads = 4\nkv_heads = " << (llama ? 2 : 4)
         << "\nffn = 172\nvocab = 61\n"
         << (model == Model::qwen ? "qk_norm = true\nqkv_bias = true\nhead_size = 10\n" : "")
         << "[batch]\nsequence = 20\nglobal = 8\nmicro = 2\n"
         << "[optimizer]\nlearning_rate = 1e-3\nepsilon = 1e-3\nbucket = 8000\n"
         << "[schedule]\nkind = constant\n"
         << "[data]\nkind = indexed\npath = " << (folder_ / "data").string()
         << "\nsplit = 90,10,0\n"
         << "[checkpoint]\nevery = 3\nkeep = 0\nload = " << (folder_ / "weights.h5").string()
         << "\nload_optimizer = false\n"
         << "[log]\ngradients_at = 1\n"
         << "[fault]\ncheck_replicas = 5\ndeadline = 50\n";
    deck.close();
    const ProgramResult made = run_command(
        fmt::format("mpirun -n 1 {} {} {}", std::getenv("TRIREME_MAKE_WEIGHTS"),
                    (folder_ / "deck.ini").string(), (folder_ / "weights.h5").string()));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  Outcome run(const Layout& layout, const std::string& common) {
    const std::filesystem::path directory = folder_ / "run";
    std::filesystem::remove_all(directory);
    const ProgramResult result =
        run_trireme(layout.ranks, fmt::format("train {} --run.directory={} {} {}",
                                              (folder_ / "deck.ini").string(), directory.string(),
                                              common, layout.words));
    Outcome outcome;
    outcome.seconds = result.seconds;
    EXPECT_EQ(result.exit_code, 0) << layout.name << "\n" << result.output;
    if (result.exit_code != 0) return outcome;
    outcome.metrics = read_metrics(directory);
    outcome.gradients = read_tensors(directory / "gradients" / "step_000000001.h5", "gradients/");
    if (outcome.metrics.size() >= 3)
      outcome.weights = read_tensors(checkpoint_path(directory, 3), "weights/");
    return outcome;
  }

  // Prints a row and checks it. `exact`: no bit may differ.
  void compare(const Layout& layout, const Outcome& have, const Outcome& want, bool exact) {
    ASSERT_EQ(have.metrics.size(), want.metrics.size()) << layout.name;
    ASSERT_EQ(have.metrics.size(), 20u);
    auto relative = [](double a, double b) { return std::fabs(a / b - 1); };
    const MetricsLine &first = have.metrics[0], &first_want = want.metrics[0];
    const double loss1 = relative(first.loss, first_want.loss);
    const double norm1 = relative(first.grad_norm, first_want.grad_norm);
    double loss = 0, norm = 0, gradient = 0, weight = 0;
    for (size_t i = 0; i < 20; ++i) {
      loss = std::max(loss, relative(have.metrics[i].loss, want.metrics[i].loss));
      norm = std::max(norm, relative(have.metrics[i].grad_norm, want.metrics[i].grad_norm));
    }
    double all = 0;
    for (const auto& [name, values] : want.gradients) all += std::pow(norm_of(values), 2);
    for (const auto& [name, values] : want.gradients) {
      // The gradient of a key bias is zero but for rounding; it is measured against the whole.
      const double floor = name.ends_with("key.bias") ? std::sqrt(all) : 0;
      ASSERT_TRUE(have.gradients.contains(name)) << name;
      const double d = distance(have.gradients.at(name), values, floor);
      EXPECT_LE(d, limits().gradient) << layout.name << ": gradient of " << name;
      gradient = std::max(gradient, d);
    }
    for (const auto& [name, values] : want.weights)
      weight = std::max(weight, distance(have.weights.at(name), values, 0));
    fmt::print("| {:26} | {:.1e} | {:.1e} | {:.1e} | {:.1e} | {:.1e} | {:.1e} | {:4.1f} |\n",
               layout.name, loss1, norm1, loss, norm, gradient, weight, have.seconds);
    std::fflush(stdout);
    EXPECT_EQ(have.gradients.size(), want.gradients.size());
    EXPECT_EQ(have.weights.size(), want.weights.size());
    EXPECT_LE(loss1, limits().first) << layout.name;
    EXPECT_LE(norm1, limits().first) << layout.name;
    EXPECT_LE(loss, limits().loss) << layout.name;
    EXPECT_LE(norm, limits().norm) << layout.name;
    EXPECT_LE(weight, limits().weight) << layout.name;
    if (exact) {
      EXPECT_EQ(loss + norm + gradient + weight, 0) << layout.name;
    }
  }

  void table(Model model, double dropout) {
    write_deck(model);
    const Layout one{"one rank", 1, ""};
    const std::string common =
        fmt::format("--model.dropout={} --precision.compute={}", dropout, compute_type());
    const double norm =
        run(one, common + " --run.steps=1 --optimizer.clip=0").metrics.at(0).grad_norm;
    const std::string clipped = fmt::format("{} --optimizer.clip={:.3g}", common, norm / 2);
    const Outcome want = run(one, clipped);
    fmt::print("\n{}, {}, dropout {}: largest relative difference from one rank\n", name_of(model),
               compute_type(), dropout);
    fmt::print("| {:26} | loss 1  | norm 1  | loss 20 | norm 20 | gradient| weights | s    |\n",
               "layout");
    for (const Layout& layout : kLayouts) {
      const auto in = [&](const std::vector<std::string>& list) {
        return std::ranges::find(list, layout.name) != list.end();
      };
      if (dropout > 0 && !in(kWithDropout)) continue;
      if (model == Model::qwen && !in(kWithHeadNorms)) continue;
      if (!picked(layout)) continue;
      const bool exact = std::string(layout.name).starts_with("recompute");
      compare(layout, run(layout, clipped), want, exact);
    }
  }

  ScratchFolder folder_;
};

TEST_F(LayoutTest, Gpt2) {
  table(Model::gpt2, 0);
}
TEST_F(LayoutTest, Llama) {
  table(Model::llama, 0);
}
TEST_F(LayoutTest, NormsOfHeadsAndBiases) {
  table(Model::qwen, 0);
}
TEST_F(LayoutTest, Gpt2WithDropout) {
  table(Model::gpt2, 0.1);
}
TEST_F(LayoutTest, LlamaWithDropout) {
  table(Model::llama, 0.1);
}

TEST_F(LayoutTest, InitialWeightsAreTheSameFileOnEveryLayout) {
  for (Model model : {Model::gpt2, Model::llama}) {
    write_deck(model);
    std::string want;
    for (const Layout& layout :
         std::vector<Layout>{{"one rank", 1, ""},
                             {"tp 4", 4, "--grid.tp=4"},
                             {"pp 2", 2, "--grid.pp=2 --grid.virtual_stages=2"},
                             {"dp 4", 4, "--grid.dp=4"},
                             {"tp 2 x pp 2", 4, "--grid.tp=2 --grid.pp=2"},
                             {"dp 2", 2, "--optimizer.zero=0"}}) {
      const std::filesystem::path directory = folder_ / "initial";
      std::filesystem::remove_all(directory);
      const ProgramResult result = run_trireme(
          layout.ranks,
          fmt::format("train {} --run.directory={} --run.steps=0 --checkpoint.load= {}",
                      (folder_ / "deck.ini").string(), directory.string(), layout.words));
      ASSERT_EQ(result.exit_code, 0) << layout.name << "\n" << result.output;
      const std::string bytes = file_bytes(checkpoint_path(directory, 0));
      ASSERT_GT(bytes.size(), 1000u);
      if (want.empty()) want = bytes;
      EXPECT_TRUE(bytes == want) << layout.name;
    }
  }
}

}  // namespace
}  // namespace trireme::test
