// RANKS 1 2 4
// The whole model in one chunk: gradients by finite differences, the same numbers under every
// recompute policy, and the same loss and gradients over tp, with and without sequence parallelism.
#include <gtest/gtest.h>

#include <cmath>

#include "support/model_harness.hpp"
#include "support/rank_test.hpp"

namespace trireme::test {
namespace {

// How activations lie between the split matrices: whole, or by rows, whose traffic may overlap.
enum class Between : uint8_t { whole, rows, overlapped };
constexpr Between kAll[] = {Between::whole, Between::rows, Between::overlapped};

ChunkOptions options_for(const Communicator& tp, Between between,
                         Recompute recompute = Recompute::none) {
  ChunkOptions o;
  o.batch = {2, 10};
  o.recompute = recompute;
  o.sequence_parallel = between != Between::whole;
  o.tp_overlap = between == Between::overlapped;
  o.grid = {tp.size(), 1, 1, 1};
  o.here = {tp.rank(), 0, 0, 0};
  return o;
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}

// Sums over tp what the table says is partial.
void finish_gradients(const ModelHarness& harness, const Communicator& tp,
                      const Communicator& kv_copies, Device& device) {
  const auto& groups = harness.table().groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const TensorView flat = harness.store().group_gradients(static_cast<int>(g));
    if (groups[g].extra_sum == ExtraSum::tp) tp.all_reduce(device.compute(), flat);
    if (groups[g].extra_sum == ExtraSum::kv_copies) kv_copies.all_reduce(device.compute(), flat);
  }
  device.compute().synchronize();
}

class ChunkTest : public ::testing::Test {
 protected:
  void compare_with_one_rank(const ModelShape& model, Between between) {
    const Communicator alone = world().split(world().rank(), 0, "alone");
    ModelHarness reference(model, options_for(alone, Between::whole), device(), alone);
    const double loss = reference.run(Mode::train);

    Communicator tp = world().split(0, world().rank(), "tp");
    tp.connect(device());
    const int copies =
        tp.size() > model.kv_heads ? tp.size() / static_cast<int>(model.kv_heads) : 1;
    Communicator kv = tp.split(tp.rank() / copies, tp.rank(), "kv copies");
    kv.connect(device());
    ModelHarness split(model, options_for(tp, between), device(), tp);
    const double split_loss =
        tp.sum(tp.rank() == 0 ? split.run(Mode::train) : (split.run(Mode::train), 0.0));
    EXPECT_NEAR(split_loss / loss, 1, 1e-5);
    finish_gradients(split, tp, kv, device());
    for (size_t i = 0; i < split.table().entries().size(); ++i) {
      const ParameterEntry& e = split.table().entries()[i];
      const int whole = reference.table().find(e.spec.name);
      const std::vector<float> want_all = reference.gradient(whole);
      const std::vector<float> have = split.gradient(static_cast<int>(i));
      const auto first = static_cast<size_t>(e.first_row * e.local.row_elements());
      double error = 0;
      for (size_t k = 0; k < have.size(); ++k)
        error += std::pow(double{have[k]} - want_all[first + k], 2);
      // The gradient of a key bias is zero but for rounding: compare with a typical norm instead.
      const double scale = std::max(norm(want_all), 1e-1);
      EXPECT_LT(std::sqrt(error) / scale, 1e-5) << e.spec.name;
    }
  }

  void recomputing_changes_no_bit(const Communicator& tp, Between between) {
    for (const ModelShape& model :
         {odd_model(false, 0.1f), odd_model(true, 0.1f), qwen_model(0.1f)}) {
      ModelHarness none(model, options_for(tp, between), device(), tp);
      const double loss = none.run(Mode::train);
      for (Recompute policy : {Recompute::selective, Recompute::full}) {
        for (int64_t layers : {0, 2}) {
          ChunkOptions o = options_for(tp, between, policy);
          o.recompute_layers = layers;
          ModelHarness again(model, o, device(), tp);
          EXPECT_EQ(again.run(Mode::train), loss);
          for (size_t i = 0; i < again.table().entries().size(); ++i)
            EXPECT_EQ(again.gradient(static_cast<int>(i)), none.gradient(static_cast<int>(i)))
                << again.table().entries()[i].spec.name;
        }
      }
    }
  }
};

TEST_F(ChunkTest, TensorParallelGivesTheSameGradients) {
  for (bool llama : {false, true})
    for (float dropout : {0.0f, 0.1f})
      compare_with_one_rank(odd_model(llama, dropout), Between::whole);
}

// A GPT without biases, and a Llama with them: what is off in one family is on in the other.
TEST_F(ChunkTest, FamiliesWithAndWithoutBiases) {
  for (bool llama : {false, true}) {
    ModelShape model = odd_model(llama, 0);
    model.bias = !model.bias;
    for (const Between between : kAll) compare_with_one_rank(model, between);
  }
}

TEST_F(ChunkTest, NormsOfHeadsAndSomeBiases) {
  for (const Between between : kAll) {
    compare_with_one_rank(qwen_model(0.1f), between);
    ModelShape model = odd_model(true, 0);
    model.output_bias = model.mlp_bias = true;
    compare_with_one_rank(model, between);
  }
}

TEST_F(ChunkTest, SequenceParallelGivesTheSameGradients) {
  for (bool llama : {false, true})
    for (float dropout : {0.0f, 0.1f})
      for (const Between between : {Between::rows, Between::overlapped})
        compare_with_one_rank(odd_model(llama, dropout), between);
}

TEST_F(ChunkTest, RecomputingChangesNoBit) {
  Communicator tp = world().split(0, world().rank(), "tp");
  tp.connect(device());
  const Between between = tp.size() > 1 ? Between::rows : Between::whole;
  recomputing_changes_no_bit(tp, between);
  if (tp.size() > 1) recomputing_changes_no_bit(tp, Between::overlapped);
}

TEST_F(ChunkTest, GradientsAgreeWithFiniteDifferences) {
  if (world().size() > 1) GTEST_SKIP() << "one rank is enough";
  const Communicator alone = world().split(world().rank(), 0, "alone");
  for (const ModelShape& model :
       {odd_model(false, 0.1f), odd_model(true, 0.1f), qwen_model(0.1f)}) {
    ModelHarness harness(model, options_for(alone, Between::whole), device(), alone);
    harness.run(Mode::train);
    for (size_t i = 0; i < harness.table().entries().size(); ++i) {
      const ParameterEntry& e = harness.table().entries()[i];
      const std::vector<float> gradient = harness.gradient(static_cast<int>(i));
      const auto value = harness.store().value(static_cast<int>(i)).host<float>();
      // Along the gradient itself: the change of the loss is its squared norm.
      const double squared = std::pow(norm(gradient), 2);
      if (squared < 1e-6) continue;
      const double step = std::min(2.5e-2 / squared, 2e-2 / std::sqrt(squared));
      const std::vector<float> saved(value.begin(), value.end());
      double loss[2];
      for (int side = 0; side < 2; ++side) {
        for (size_t k = 0; k < gradient.size(); ++k)
          value[k] = saved[k] + static_cast<float>((side == 0 ? step : -step) * gradient[k]);
        loss[side] = harness.run(Mode::train);
      }
      std::copy(saved.begin(), saved.end(), value.begin());
      const double expected = 2 * step * squared;  // the loss itself is rounded to about 3e-5
      EXPECT_NEAR(loss[0] - loss[1], expected, 1e-2 * expected + 2e-4) << e.spec.name;
    }
  }
}

TEST_F(ChunkTest, EvaluationHasNoDropoutAndLeavesNoGradient) {
  Communicator tp = world().split(0, world().rank(), "tp");
  tp.connect(device());
  ModelHarness with(odd_model(false, 0.3f), options_for(tp, Between::whole), device(), tp);
  ModelHarness without(odd_model(false, 0), options_for(tp, Between::whole), device(), tp);
  EXPECT_EQ(with.run(Mode::evaluate), without.run(Mode::evaluate));
  EXPECT_NE(tp.sum(with.run(Mode::train, 1)), tp.sum(with.run(Mode::train, 2)));
  with.run(Mode::evaluate);
  for (size_t i = 0; i < with.table().entries().size(); ++i)
    EXPECT_EQ(norm(with.gradient(static_cast<int>(i))), 0);
}

}  // namespace
}  // namespace trireme::test
