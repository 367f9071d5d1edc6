// RANKS 1 2 4
// The distributed optimizer: on every layout the same weights, moments and norm as one process that
// holds everything.
#include "trireme/parallel/distributed_adamw.hpp"

#include <gtest/gtest.h>

#include "support/optimizer_harness.hpp"
#include "trireme/parallel/replica_check.hpp"

namespace trireme::test {
namespace {

using StepNumbers = OptimizerHarness::StepNumbers;

std::vector<std::string> names_of(const ModelShape& model) {
  const ParameterTable table(model, TableOptions{});
  std::vector<std::string> names;
  for (const ParameterEntry& entry : table.entries()) names.push_back(entry.spec.name);
  return names;
}

// AdamW in f64 on whole tensors: formulas as in ops.hpp.
class Reference {
 public:
  explicit Reference(const ModelShape& model) : table_(model, TableOptions{}) {
    for (const ParameterEntry& entry : table_.entries()) {
      Tensor& t = tensors_[entry.spec.name];
      const size_t count = static_cast<size_t>(entry.real_elements());
      t.decays = entry.spec.decays;
      t.m.resize(count);
      t.v.resize(count);
      for (size_t i = 0; i < count; ++i)
        t.master.push_back(test_weight(entry.spec, static_cast<int64_t>(i)));
    }
  }
  struct Tensor {
    std::vector<double> master, m, v;
    bool decays = false;
  };

  // Returns the norm of the mean gradient.
  double step(int step, const StepNumbers& numbers, const AdamWOptions& options = {}) {
    double squares = 0;
    for (auto& [name, t] : tensors_)
      for (size_t i = 0; i < t.master.size(); ++i)
        squares += std::pow(total_gradient(name, static_cast<int64_t>(i), step), 2);
    const double norm = std::sqrt(squares) / numbers.tokens;
    const double factor = numbers.clip > 0 ? std::min(1.0, numbers.clip / (norm + 1e-6)) : 1.0;
    const double c1 = 1 - std::pow(options.beta1, numbers.updates + 1);
    const double c2 = 1 - std::pow(options.beta2, numbers.updates + 1);
    for (auto& [name, t] : tensors_)
      for (size_t i = 0; i < t.master.size(); ++i) {
        const double g =
            factor / numbers.tokens * total_gradient(name, static_cast<int64_t>(i), step);
        t.m[i] = options.beta1 * t.m[i] + (1 - options.beta1) * g;
        t.v[i] = options.beta2 * t.v[i] + (1 - options.beta2) * g * g;
        const double decay = t.decays ? options.weight_decay : 0;
        t.master[i] -=
            numbers.learning_rate *
            (t.m[i] / c1 / (std::sqrt(t.v[i] / c2) + options.epsilon) + decay * t.master[i]);
      }
    return norm;
  }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  ParameterTable table_;
  std::map<std::string, Tensor> tensors_;
};

void fill_step(OptimizerHarness& h, int step) {
  h.fill_gradients(
      [&](const std::string& name, int64_t i) { return total_gradient(name, i, step); });
}

std::vector<GlobalSlice> everything(const OptimizerHarness& h) {
  std::vector<GlobalSlice> slices = h.adamw.weight_slices();
  for (GlobalSlice& slice : h.adamw.state_slices()) slices.push_back(slice);
  return slices;
}

void expect_tensor(const std::vector<float>& got, const std::vector<double>& right,
                   double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), right.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - right[i]));
  EXPECT_LE(worst, tolerance) << what;
}

void expect_reference(const LogicalFile& file, const Reference& reference,
                      const std::string& what) {
  EXPECT_EQ(file.size(), 4 * reference.tensors().size()) << what;
  for (const auto& [name, t] : reference.tensors()) {
    expect_tensor(file.values("master/" + name), t.master, 2e-6, what + " master " + name);
    expect_tensor(file.values("adam_m/" + name), t.m, 1e-6, what + " m " + name);
    expect_tensor(file.values("adam_v/" + name), t.v, 1e-6, what + " v " + name);
    EXPECT_EQ(file.values("weights/" + name), file.values("master/" + name)) << what << name;
  }
}

void expect_no_difference(OptimizerHarness& h, const std::string& what) {
  const std::vector<std::string> names = replica_mismatch(h.store, h.grid, device());
  EXPECT_TRUE(names.empty()) << what << ": " << names.front();
}

TEST(DistributedAdamW, EveryLayoutGivesTheResultOfOneProcess) {
  for (const bool llama : {false, true}) {
    Reference reference(five_layers(llama));
    std::vector<double> norms;
    const auto numbers = [](int step) {
      StepNumbers n;
      n.clip = step == 1 ? 1.0f : 0.0f;
      n.updates = step;
      return n;
    };
    for (int step = 0; step < 3; ++step) norms.push_back(reference.step(step, numbers(step)));
    EXPECT_GT(norms[1], 2.0) << "clipping must do something";
    for (const Layout& layout : layouts_of(world().size())) {
      const std::string what = fmt::format("{}, llama {}", layout.text(), llama);
      OptimizerHarness h(five_layers(llama), layout);
      h.init_masters();
      expect_no_difference(h, what);
      for (int step = 0; step < 3; ++step) {
        fill_step(h, step);
        const StepState state = h.step(numbers(step));
        const auto s = static_cast<size_t>(step);
        EXPECT_NEAR(state.norm, norms[s], 1e-5 * norms[s]) << what;
        EXPECT_EQ(state.sums[0], 20) << what;
        EXPECT_EQ(state.sums[1], 8) << what;
        EXPECT_EQ(state.skip, 0);
        expect_no_difference(h, what);
      }
      LogicalFile file;
      file.write(everything(h));
      expect_reference(file, reference, what);
    }
  }
}

// Three steps on one layout are two steps, a file, and one step on another layout: to the bit where
// the norm is not used, since each element's arithmetic is the same.
TEST(DistributedAdamW, AnyLayoutReadsAnyOthersState) {
  const std::vector<Layout> layouts = layouts_of(world().size());
  const ModelShape model = five_layers(true);
  const auto run = [&](OptimizerHarness& h, int first, int last) {
    for (int step = first; step < last; ++step) {
      fill_step(h, step);
      StepNumbers numbers;
      numbers.updates = step;
      h.step(numbers);
    }
  };
  LogicalFile half, straight;
  {
    OptimizerHarness h(model, layouts.front());
    h.init_masters();
    run(h, 0, 2);
    half.write(everything(h));
    run(h, 2, 3);
    straight.write(everything(h));
  }
  for (const Layout& layout : layouts) {
    OptimizerHarness h(model, layout);
    half.read(h.adamw.load_slices());
    h.adamw.values_from_masters();
    LogicalFile again, after;
    again.write(everything(h));
    run(h, 2, 3);
    after.write(everything(h));
    for (const std::string& parameter : names_of(model))
      for (const char* prefix : {"weights/", "master/", "adam_m/", "adam_v/"}) {
        const std::string name = prefix + parameter;
        EXPECT_EQ(again.values(name), half.values(name)) << layout.text() << " " << name;
        EXPECT_EQ(after.values(name), straight.values(name)) << layout.text() << " " << name;
      }
  }
}

// Squares of a split parameter 3, of a replicated one 1: the norm is 2, never sqrt(5) or sqrt(7).
TEST(DistributedAdamW, NormCountsEveryParameterOnce) {
  for (const bool llama : {false, true})
    for (const Layout& layout : layouts_of(world().size())) {
      OptimizerHarness h(five_layers(llama), layout);
      h.init_masters();
      const auto gradient = [&](const std::string& name, int64_t i) {
        const bool split = name == "layers.2.attention.query.weight" &&
                           (i == 5 || i == 24 * 11 + 3 || i == 24 * 24 - 1);
        return split || (name == "layers.1.norm2.gain" && i == 7) ? 1.0f : 0.0f;
      };
      h.fill_gradients(gradient);
      StepNumbers numbers;
      numbers.tokens = 1;
      numbers.clip = 1;
      const StepState state = h.step(numbers);
      EXPECT_FLOAT_EQ(state.norm, 2.0f) << layout.text();
      EXPECT_NEAR(state.gradient_scale, 0.5f, 1e-6) << layout.text();
      // The table is one parameter, also where two stages hold it; KV heads also where copied.
      h.fill_gradients([](const std::string& name, int64_t i) {
        const bool table = name == "embedding.tokens" && (i == 0 || i == 61 * 24 - 1);
        return table || (name == "layers.0.attention.key.weight" && i == 24 * 6 + 1) ||
                       (name == "layers.0.attention.value.weight" && i == 0)
                   ? 3.0f
                   : 0.0f;
      });
      EXPECT_FLOAT_EQ(h.step(numbers).norm, 6.0f) << layout.text();
    }
}

TEST(DistributedAdamW, ZeroGradientHasFactorOne) {
  const Layout layout{{1, 1, world().size(), 1}, 1, false};
  OptimizerHarness h(five_layers(false), layout);
  h.init_masters();
  h.fill_gradients([](const std::string&, int64_t) { return 0.0f; });
  StepNumbers numbers;
  numbers.clip = 0.5f;
  const StepState state = h.step(numbers);
  EXPECT_EQ(state.norm, 0);
  EXPECT_EQ(state.skip, 0);
  EXPECT_FLOAT_EQ(state.gradient_scale, 1.0f / 8);
}

// One element on one rank is not finite: every rank skips, nothing changes.
TEST(DistributedAdamW, NonFiniteGradientsAreSkippedEverywhere) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(), 3e38f};
  const std::vector<Layout> layouts = layouts_of(world().size());
  for (size_t l = 0; l < std::max(layouts.size(), std::size(bad)); ++l) {
    const Layout& layout = layouts[l % layouts.size()];
    OptimizerHarness h(five_layers(false), layout);
    h.init_masters();
    fill_step(h, 0);
    if (world().rank() == world().size() - 1)
      h.store.gradient(h.table.find("layers.4.mlp.down.weight")).host<float>()[3] =
          bad[l % std::size(bad)];
    LogicalFile before, after;
    before.write(everything(h));
    StepNumbers numbers;
    numbers.clip = 1;
    EXPECT_EQ(h.step(numbers).skip, 1) << layout.text() << " " << bad[l % std::size(bad)];
    after.write(everything(h));
    for (const std::string& name : names_of(five_layers(false)))
      EXPECT_EQ(after.values("master/" + name), before.values("master/" + name));
  }
}

TEST(DistributedAdamW, MemoryIsTwelveBytesForEachOwnedElement) {
  for (const Layout& layout : layouts_of(world().size())) {
    OptimizerHarness h(five_layers(false), layout);
    const int64_t dp = layout.zero == 1 ? layout.grid.dp * layout.grid.cp : 1;
    EXPECT_EQ(static_cast<int64_t>(h.adamw.state_bytes()), 12 * h.table.elements() / dp);
    int64_t real = 0;
    for (const ParameterEntry& entry : h.table.entries()) real += entry.real_elements();
    // Padding: one alignment a parameter and one share a bucket, and rows of the vocabulary.
    const int64_t buckets = static_cast<int64_t>(h.shards.shards().size());
    const int64_t entries = static_cast<int64_t>(h.table.entries().size());
    const int64_t padding = 64 * entries + 64 * layout.grid.dp * layout.grid.cp * buckets + 4 * 24;
    EXPECT_LE(static_cast<int64_t>(h.adamw.state_bytes()), 12 * (real + padding) / dp)
        << layout.text();
  }
}

// With tiny buckets some rank of four owns nothing but padding somewhere; its share still moves.
TEST(DistributedAdamW, ARankMayOwnOnlyPadding) {
  const Layout layout{{1, 1, world().size(), 1}, 1, false};
  OptimizerHarness h(five_layers(false), layout, 1);
  std::vector<int64_t> owned(h.shards.shards().size());
  for (const OwnedPiece& piece : h.shards.pieces())
    owned[static_cast<size_t>(piece.shard)] += piece.count;
  const int64_t least = *std::min_element(owned.begin(), owned.end());
  const int64_t least_of_all = world().min(least);
  EXPECT_EQ(least_of_all == 0, world().size() == 4);
  h.init_masters();
  fill_step(h, 0);
  h.step({});
  Reference reference(five_layers(false));
  reference.step(0, {});
  LogicalFile file;
  file.write(everything(h));
  expect_reference(file, reference, "tiny buckets");
}

TEST(DistributedAdamW, ValuesAreRoundedMastersAndLoadedValuesMakeMasters) {
  for (const int zero : {0, 1}) {
    const Layout layout{{1, 1, world().size(), 1}, zero, false};
    OptimizerHarness h(five_layers(false, DType::bf16), layout);
    h.init_masters();
    fill_step(h, 0);
    h.step({});
    expect_no_difference(h, "bf16");
    const auto expect_rounded = [&] {
      for (const OwnedPiece& piece : h.shards.pieces())
        for (int64_t i = 0; i < piece.count; ++i) {
          const float master =
              h.memory.master.host<float>()[static_cast<size_t>(piece.state_first + i)];
          const uint16_t value =
              h.store.value(piece.entry).host<uint16_t>()[static_cast<size_t>(piece.first + i)];
          ASSERT_EQ(value, to_bf16(master));
        }
    };
    expect_rounded();
    // Weights without state: at rate 0 the loaded values stay, to the bit.
    for (size_t e = 0; e < h.table.entries().size(); ++e) {
      const auto view = h.store.value(static_cast<int>(e)).host<uint16_t>();
      for (size_t i = 0; i < view.size(); ++i)
        view[i] = to_bf16(test_weight(h.table.entries()[e].spec, static_cast<int64_t>(i) + 5));
    }
    h.adamw.masters_from_values();
    h.adamw.reset_moments();
    fill_step(h, 1);
    StepNumbers still;
    still.learning_rate = 0;
    h.step(still);
    for (size_t e = 0; e < h.table.entries().size(); ++e) {
      const auto view = h.store.value(static_cast<int>(e)).host<uint16_t>();
      for (size_t i = 0; i < view.size(); ++i)
        ASSERT_EQ(view[i],
                  to_bf16(test_weight(h.table.entries()[e].spec, static_cast<int64_t>(i) + 5)));
    }
  }
}

TEST(ReplicaCheck, NamesWhatDiffersOnEveryRank) {
  if (world().size() == 1) GTEST_SKIP() << "one rank has no copies";
  for (const Layout& layout : layouts_of(world().size())) {
    OptimizerHarness h(five_layers(false), layout);
    h.init_masters();
    const bool last_rank = world().rank() == world().size() - 1;
    const auto flip_last_bit = [&](const std::string& name) {
      if (last_rank && h.table.contains(name))
        h.store.value(h.table.find(name)).host<float>()[1] += 1e-6f;
    };
    flip_last_bit("layers.4.norm1.gain");
    flip_last_bit("embedding.tokens");
    std::vector<std::string> right;
    const bool copied = layout.grid.dp * layout.grid.cp > 1;
    if (copied || layout.grid.pp > 1) right.push_back("embedding.tokens");
    if (copied || layout.grid.tp > 1) right.push_back("layers.4.norm1.gain");
    EXPECT_EQ(replica_mismatch(h.store, h.grid, device()), right) << layout.text();
  }
}

TEST(BiasCorrection, CountsAppliedUpdates) {
  EXPECT_FLOAT_EQ(bias_correction(0.9f, 0), 0.1f);
  EXPECT_FLOAT_EQ(bias_correction(0.9f, 1), 0.19f);
  EXPECT_FLOAT_EQ(bias_correction(0.95f, 2), 1 - 0.95f * 0.95f * 0.95f);
}

}  // namespace
}  // namespace trireme::test
