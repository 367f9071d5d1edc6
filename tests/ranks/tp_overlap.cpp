// RANKS 1 2 3 4
// Shards of activations that travel over tp beside the products: order of the products, values,
// sums in the order of the ranks, and that messages and products really run side by side.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "device/cpu/stream_state.hpp"
#include "model/tensor_parallel.hpp"
#include "support/model_harness.hpp"
#include "support/rank_test.hpp"

namespace trireme::test {
namespace {

constexpr int64_t kRows = 7, kHidden = 5;

// Element i of the shard of `rank`.
float element(int rank, int64_t i) {
  return static_cast<float>(1000 * (rank + 1) + i);
}

// A group of all ranks with scratch for shards of [rows, hidden].
class Group {
 public:
  explicit Group(DType type = DType::f32, int64_t rows = kRows, int64_t hidden = kHidden)
      : tp_(world().split(0, world().rank(), "tp")),
        rows_(rows),
        hidden_(hidden),
        type_(type),
        arena_(Arena::real(4 * (static_cast<size_t>(ranks() * rows * hidden) * size_of(type) +
                                Arena::kAlignment))) {
    tp_.connect(device(), Links::pairs);
    scratch.gathered = arena_.take({ranks() * rows, hidden}, type, "gathered");
    scratch.partial = arena_.take({ranks() * rows, hidden}, type, "partial");
    mine = arena_.take({rows, hidden}, type, "mine");
    sum = arena_.take({rows, hidden}, type, "sum");
    context = std::make_unique<LayerContext>(
        LayerContext{device(), tp_, nullptr, device().new_stream("tensor parallel"), {}, {}});
    ChunkOptions options;
    options.sequence_parallel = options.tp_overlap = true;
    options.grid = {tp_.size(), 1, 1, 1};
    options.here = {tp_.rank(), 0, 0, 0};
    LocalSizes sizes;
    sizes.rows = rows;
    sizes.tokens = ranks() * rows;
    sizes.hidden = hidden;
    overlap = TensorParallel(options, sizes);
  }
  int64_t ranks() const { return world().size(); }
  int rank() const { return world().rank(); }
  Stream& stream() const { return context->tp_stream; }
  void fill_mine() const {
    for (int64_t i = 0; i < rows_ * hidden_; ++i)
      mine.host<float>()[static_cast<size_t>(i)] = element(rank(), i);
  }
  // Moves messages on for some seconds: true when none is left.
  bool messages_arrive() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!stream().state().progress() && std::chrono::steady_clock::now() < end)
      world().progress();
    return stream().state().idle();
  }

 private:
  Communicator tp_;
  int64_t rows_, hidden_;
  DType type_;
  Arena arena_;

 public:
  std::unique_ptr<LayerContext> context;
  TensorParallel overlap;
  Scratch scratch;
  TensorView mine, sum;
};

TEST(TpOverlap, ShardsAreMultipliedFromTheOwnOnInTurn) {
  for (const auto leave : {TensorParallel::Leave::nothing, TensorParallel::Leave::rows}) {
    Group g;
    g.fill_mine();
    std::vector<int64_t> order;
    const TensorView all = g.overlap.gather_product(
        *g.context, g.mine, g.scratch, leave, [&](const TensorView& x, int64_t first) {
          order.push_back(first / kRows);
          const auto owner = static_cast<int>(first / kRows);
          ASSERT_EQ(x.elements(), kRows * kHidden);
          for (int64_t i = 0; i < x.elements(); ++i)
            ASSERT_EQ(x.host<float>()[static_cast<size_t>(i)], element(owner, i)) << owner;
        });
    std::vector<int64_t> want;
    for (int64_t s = 0; s < g.ranks(); ++s) want.push_back((g.rank() + s) % g.ranks());
    EXPECT_EQ(order, want);
    EXPECT_EQ(g.context->tp_shards, g.ranks() - 1);
    EXPECT_TRUE(g.stream().state().idle());
    if (leave == TensorParallel::Leave::nothing) continue;
    for (int64_t i = 0; i < all.elements(); ++i)
      ASSERT_EQ(all.host<float>()[static_cast<size_t>(i)],
                element(static_cast<int>(i / (kRows * kHidden)), i % (kRows * kHidden)));
  }
}

// What `from` gives to the sum of element i of `owner`'s shard: sums in another order, or rounded
// on the way, have other bits.
float part(int from, int64_t owner, int64_t i) {
  const float large[] = {3e7f, 1.0f, -3e7f, 0.7f};
  return large[(from + owner) % 4] + static_cast<float>(i) / 3;
}

TEST(TpOverlap, SumsAreInTheOrderOfTheRanks) {
  Group g;
  std::vector<int64_t> order;
  g.overlap.product_reduce(*g.context, g.sum, g.scratch, [&](int64_t first, const TensorView& out) {
    order.push_back(first / kRows);
    ASSERT_EQ(out.shape[0], kRows);
    for (int64_t i = 0; i < out.elements(); ++i)
      out.host<float>()[static_cast<size_t>(i)] = part(g.rank(), first / kRows, i);
  });
  std::vector<int64_t> want;
  for (int64_t s = 1; s <= g.ranks(); ++s) want.push_back((g.rank() + s) % g.ranks());
  EXPECT_EQ(order, want) << "the own shard comes last";
  EXPECT_EQ(g.context->tp_shards, g.ranks() - 1);
  EXPECT_TRUE(g.stream().state().idle());
  for (int64_t i = 0; i < g.sum.elements(); ++i) {
    float total = 0;
    for (int r = 0; r < g.ranks(); ++r) total += part(r, g.rank(), i);
    ASSERT_EQ(g.sum.host<float>()[static_cast<size_t>(i)], total) << i;
  }
}

TEST(TpOverlap, HalvesAreSummedInF32AndRoundedOnce) {
  Group g(DType::bf16);
  g.overlap.product_reduce(*g.context, g.sum, g.scratch, [&](int64_t first, const TensorView& out) {
    for (int64_t i = 0; i < out.elements(); ++i)
      out.host<uint16_t>()[static_cast<size_t>(i)] = to_bf16(part(g.rank(), first / kRows, i));
  });
  for (int64_t i = 0; i < g.sum.elements(); ++i) {
    float total = 0;
    for (int r = 0; r < g.ranks(); ++r) total += from_bf16(to_bf16(part(r, g.rank(), i)));
    ASSERT_EQ(g.sum.host<uint16_t>()[static_cast<size_t>(i)], to_bf16(total)) << i;
  }
}

// Messages of a size that MPI does not buffer.
constexpr int64_t kLongRows = 2048, kLongHidden = 64;

// The other ranks begin when rank 0 is in a product that needs nothing of them: were it waiting for
// them before, all would wait for ever.
void late_peers(const Group& g, bool& met) {
  if (g.rank() != 0 || met) return;
  world().barrier();
  met = true;
}

TEST(TpOverlap, ProductsDoNotWaitForPeersThatAreLate) {
  if (world().size() == 1) GTEST_SKIP() << "a group of one has no peers";
  Group g(DType::f32, kLongRows, kLongHidden);
  g.fill_mine();
  bool met = false;
  if (g.rank() != 0) world().barrier();
  g.overlap.gather_product(*g.context, g.mine, g.scratch, TensorParallel::Leave::rows,
                           [&](const TensorView&, int64_t) { late_peers(g, met); });
  met = false;
  if (g.rank() != 0) world().barrier();
  g.overlap.product_reduce(*g.context, g.sum, g.scratch, [&](int64_t first, const TensorView& out) {
    fill_zero(device().compute(), out);
    if (first == 0) late_peers(g, met);  // the last product of rank 0
  });
  if (g.rank() != 0) world().barrier();
  g.overlap.start_gather(*g.context, g.mine, g.scratch);
  met = false;
  late_peers(g, met);
  g.overlap.finish_gather(*g.context);
}

// The others' shards arrive while the first product runs, and the parts of the own sum while the
// last one does.
TEST(TpOverlap, ShardsTravelWhileProductsRun) {
  if (world().size() == 1) GTEST_SKIP() << "a group of one sends nothing";
  Group g(DType::f32, kLongRows, kLongHidden);
  g.fill_mine();
  int products = 0;
  g.overlap.gather_product(*g.context, g.mine, g.scratch, TensorParallel::Leave::nothing,
                           [&](const TensorView&, int64_t) {
                             if (products++ > 0) return;
                             EXPECT_EQ(g.context->tp_shards, g.ranks() - 1);
                             EXPECT_TRUE(g.messages_arrive());
                           });
  g.context->tp_shards = 0;
  g.overlap.product_reduce(*g.context, g.sum, g.scratch, [&](int64_t first, const TensorView& out) {
    fill_zero(device().compute(), out);
    if (first != g.rank() * kLongRows) return;
    EXPECT_EQ(g.context->tp_shards, g.ranks() - 1);
    EXPECT_TRUE(g.messages_arrive());
  });
}

ChunkOptions chunk_options(const Communicator& tp, Recompute recompute, bool overlap) {
  ChunkOptions o;
  o.batch = {2, 10};
  o.recompute = recompute;
  o.sequence_parallel = tp.size() > 1;
  o.tp_overlap = overlap;
  o.grid = {tp.size(), 1, 1, 1};
  o.here = {tp.rank(), 0, 0, 0};
  return o;
}

// In every layer two gathers and two sums forward, and the gathers of two gradients backward; made
// again are both gathers and the first sum.
TEST(TpOverlap, EveryProductOfALayerHasItsTrafficBeside) {
  if (world().size() == 3) GTEST_SKIP() << "the model has four heads";
  Communicator tp = world().split(0, world().rank(), "tp");
  tp.connect(device(), Links::pairs);
  const int64_t peers = tp.size() - 1;
  for (const ModelShape& model : {odd_model(false), odd_model(true), qwen_model()}) {
    for (const Recompute policy : {Recompute::none, Recompute::selective, Recompute::full}) {
      ModelHarness serial(model, chunk_options(tp, policy, false), device(), tp);
      serial.run(Mode::train);
      EXPECT_EQ(serial.tp_shards(), 0);
      ModelHarness overlapped(model, chunk_options(tp, policy, true), device(), tp);
      EXPECT_EQ(overlapped.arena().high_water_bytes(), serial.arena().high_water_bytes());
      overlapped.run(Mode::train);
      EXPECT_EQ(overlapped.tp_shards(), peers * model.layers * (policy == Recompute::full ? 9 : 6));
    }
  }
}

TEST(TpOverlap, TheSameRunTwiceGivesTheSameBits) {
  if (world().size() == 3) GTEST_SKIP() << "the model has four heads";
  Communicator tp = world().split(0, world().rank(), "tp");
  tp.connect(device(), Links::pairs);
  for (const bool llama : {false, true}) {
    ModelHarness model(odd_model(llama, 0.1f), chunk_options(tp, Recompute::none, true), device(),
                       tp);
    const auto gradients = [&] {
      std::vector<std::vector<float>> all;
      for (size_t i = 0; i < model.table().entries().size(); ++i)
        all.push_back(model.gradient(static_cast<int>(i)));
      return all;
    };
    const double loss = model.run(Mode::train);
    const auto first = gradients();
    // Ranks that come at other times change nothing.
    for (int pause = 0; pause < 3; ++pause) {
      std::this_thread::sleep_for(std::chrono::milliseconds((tp.rank() + pause) % tp.size()));
      EXPECT_EQ(model.run(Mode::train), loss);
      EXPECT_EQ(gradients(), first);
    }
  }
}

}  // namespace
}  // namespace trireme::test
