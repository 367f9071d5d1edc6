// RANKS 1 2 4
// A row of several documents is each document by itself: the same loss and the same gradients, with
// learned and with rotary positions, on every tp layout.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/model_harness.hpp"
#include "support/rank_test.hpp"

namespace trireme::test {
namespace {

constexpr int64_t kLength = 32;
const std::vector<int64_t> kDocuments = {7, 1, 14, 10};

ModelShape model_of(bool llama) {
  ModelShape model = odd_model(llama);
  model.max_sequence = kLength;
  return model;
}

// Tokens [first, first + length) of the row: a document by itself, from position 0 on.
void fill(MicroBatch& batch, int64_t first, int64_t length, int64_t place) {
  for (int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<size_t>(place + i);
    const int64_t token = first + i;
    batch.tokens.host<int32_t>()[at] = static_cast<int32_t>((token * 17 + 3) % 61);
    batch.targets.host<int32_t>()[at] = static_cast<int32_t>((token * 29 + 11) % 61);
    batch.mask.host<float>()[at] = token % 5 == 2 ? 0.0f : 1.0f;
    batch.positions.host<int32_t>()[at] = static_cast<int32_t>(i);
  }
}

ChunkOptions options_for(const Communicator& tp, int64_t length, bool sequence_parallel) {
  ChunkOptions o;
  o.batch = {1, length};
  o.sequence_parallel = sequence_parallel && tp.size() > 1;
  o.grid = {tp.size(), 1, 1, 1};
  o.here = {tp.rank(), 0, 0, 0};
  return o;
}

struct Sums {
  double loss = 0;
  std::vector<std::vector<double>> gradients;  // by entry of the table
};

Sums one_by_one(const ModelShape& model, const Communicator& alone) {
  Sums sums;
  int64_t first = 0;
  for (const int64_t length : kDocuments) {
    ModelHarness harness(model, options_for(alone, length, false), device(), alone);
    fill(harness.batch(), first, length, 0);
    sums.loss += harness.run(Mode::train);
    sums.gradients.resize(harness.table().entries().size());
    for (size_t e = 0; e < sums.gradients.size(); ++e) {
      const std::vector<float> gradient = harness.gradient(static_cast<int>(e));
      sums.gradients[e].resize(gradient.size());
      for (size_t i = 0; i < gradient.size(); ++i) sums.gradients[e][i] += double{gradient[i]};
    }
    first += length;
  }
  return sums;
}

// The packed row on this group, with the documents' starts in `starts`.
class Packed {
 public:
  Packed(const ModelShape& model, const Communicator& tp, bool sequence_parallel)
      : harness(model, options_for(tp, kLength, sequence_parallel), device(), tp) {
    int64_t first = 0;
    for (const int64_t length : kDocuments) {
      fill(harness.batch(), first, length, first);
      starts.insert(starts.end(), static_cast<size_t>(length), static_cast<int32_t>(first));
      first += length;
    }
    harness.batch().starts = {reinterpret_cast<std::byte*>(starts.data()), {kLength}, DType::i32};
  }
  std::vector<int32_t> starts;
  ModelHarness harness;
};

double norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

void finish_gradients(const ModelHarness& harness, const Communicator& tp, const Communicator& kv) {
  const auto& groups = harness.table().groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const TensorView flat = harness.store().group_gradients(static_cast<int>(g));
    if (groups[g].extra_sum == ExtraSum::tp) tp.all_reduce(device().compute(), flat);
    if (groups[g].extra_sum == ExtraSum::kv_copies) kv.all_reduce(device().compute(), flat);
  }
}

TEST(Documents, APackedRowIsItsDocuments) {
  const Communicator alone = world().split(world().rank(), 0, "alone");
  Communicator tp = world().split(0, world().rank(), "tp");
  tp.connect(device());
  for (const bool llama : {false, true}) {
    const ModelShape model = model_of(llama);
    const Sums want = one_by_one(model, alone);
    const int copies = std::max(1, tp.size() / static_cast<int>(model.kv_heads));
    Communicator kv = tp.split(tp.rank() / copies, tp.rank(), "kv copies");
    kv.connect(device());
    for (const bool sequence_parallel : {false, true}) {
      Packed packed(model, tp, sequence_parallel);
      const double own = packed.harness.run(Mode::train);
      const double loss = tp.sum(tp.rank() == 0 ? own : 0.0);
      EXPECT_NEAR(loss / want.loss, 1, 1e-6);
      finish_gradients(packed.harness, tp, kv);
      const ParameterTable& table = packed.harness.table();
      const ParameterTable whole(model, {});
      for (size_t e = 0; e < table.entries().size(); ++e) {
        const ParameterEntry& entry = table.entries()[e];
        const auto& expected = want.gradients[static_cast<size_t>(whole.find(entry.spec.name))];
        const std::vector<float> have = packed.harness.gradient(static_cast<int>(e));
        const auto first = static_cast<size_t>(entry.first_row * entry.local.row_elements());
        double error = 0;
        for (size_t i = 0; i < have.size(); ++i)
          error += std::pow(double{have[i]} - expected[first + i], 2);
        EXPECT_LT(std::sqrt(error) / std::max(norm(expected), 0.1), 1e-5)
            << entry.spec.name << (llama ? " llama" : " gpt2");
      }
    }
  }
}

// The test above would see a leak: without the starts the loss is another.
TEST(Documents, WithoutStartsTheyMeet) {
  const Communicator alone = world().split(world().rank(), 0, "alone");
  for (const bool llama : {false, true}) {
    Packed packed(model_of(llama), alone, false);
    const double apart = packed.harness.run(Mode::train);
    packed.harness.batch().starts = {};
    EXPECT_GT(std::abs(packed.harness.run(Mode::train) / apart - 1), 1e-3);
  }
}

}  // namespace
}  // namespace trireme::test
