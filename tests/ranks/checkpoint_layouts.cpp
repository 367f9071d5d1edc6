// RANKS 4
// All pairs of thirteen layouts: what one saves, every other loads with the same bits, weights,
// master weights and moments; and all of them write the same file.
#include <fmt/format.h>

#include "support/checkpoint_state.hpp"
#include "support/model_harness.hpp"
#include "support/rank_test.hpp"
#include "trireme/comm/process_grid.hpp"
#include "trireme/parallel/distributed_adamw.hpp"

namespace trireme::test {
namespace {

struct Layout {
  GridShape grid;
  int zero = 1;
  int chunks = 1;
  bool sequence_parallel = false;
  int64_t bucket = 1500;
  std::string text() const {
    return fmt::format("{} zero {} chunks {} bucket {}", grid.text(), zero, chunks, bucket);
  }
};

std::vector<Layout> layouts() {
  return {{.grid = {1, 1, 1, 1}},
          {.grid = {1, 1, 2, 1}},
          {.grid = {2, 1, 1, 1}},
          {.grid = {1, 1, 1, 2}},
          {.grid = {2, 1, 1, 2}},
          {.grid = {1, 1, 4, 1}},
          {.grid = {1, 1, 4, 1}, .zero = 0, .bucket = 1 << 20},
          {.grid = {4, 1, 1, 1}, .sequence_parallel = true},
          {.grid = {1, 1, 1, 4}},
          {.grid = {2, 1, 2, 1}, .sequence_parallel = true},
          {.grid = {2, 1, 2, 1}, .zero = 0},
          {.grid = {1, 1, 2, 2}, .chunks = 2, .bucket = 300},
          {.grid = {1, 2, 2, 1}, .bucket = 7000}};
}

// Odd sizes: vocabulary 61, five layers, and with Llama two KV heads on up to four tp ranks.
ModelShape model(bool llama, DType compute) {
  ModelShape shape = odd_model(llama);
  shape.layers = 5;
  shape.ffn = 44;
  shape.compute = compute;
  return shape;
}

// The bits of an element of the state: another for each tensor and place, finite.
float value_of(const std::string& name, int64_t index) {
  const uint64_t word = mix64(name_hash(name) + static_cast<uint64_t>(index) * 0x9E3779B9ull);
  return static_cast<float>(static_cast<int64_t>(word % 2000003) - 1000001) / 65536.0f;
}

// The parameters and the optimizer of a layout, on the ranks that it has; no layers.
class LaidOut {
 public:
  LaidOut(const Communicator& group, const ModelShape& model, const Layout& layout)
      : grid_(group, layout.grid, model.kv_heads, device()),
        table_(model,
               {layout.grid, grid_.here(), layout.chunks, layout.sequence_parallel, layout.bucket}),
        shards_(table_, grid_.dp().rank(), grid_.dp().size(), layout.zero),
        arena_(sized(model)),
        store_(table_, model.compute, arena_),
        memory_(shards_, arena_),
        sync_(store_, shards_, grid_, device()),
        adamw_(store_, shards_, memory_, sync_, grid_, {}, device()),
        context_{grid_.world(), device().compute(), log_} {
    for (size_t g = 0; g < table_.groups().size(); ++g)
      fill_zero(device().compute(), store_.group_values(static_cast<int>(g)));
  }

  void make_state() {
    for (GlobalSlice& slice : adamw_.load_slices())
      visit(slice, [&](float& held, float right) {
        held = slice.name.starts_with("adam_v/") ? std::fabs(right) : right;
      });
    adamw_.values_from_masters();
  }
  void clear() {
    fill_zero(device().compute(), memory_.master);
    adamw_.reset_moments();
    adamw_.values_from_masters();
  }
  int64_t wrong() {
    int64_t count = 0;
    for (GlobalSlice& slice : adamw_.load_slices())
      visit(slice, [&](const float& held, float right) {
        count += held == (slice.name.starts_with("adam_v/") ? std::fabs(right) : right) ? 0 : 1;
      });
    // Values on every rank, those of other owners too, are the rounded masters.
    for (const GlobalSlice& slice : store_.value_slices("weights/")) {
      const std::string master = "master/" + slice.name.substr(8);
      for_each_element(slice, [&](int64_t index, const std::byte* place) {
        const float right = value_of(master, index);
        if (slice.local.dtype == DType::bf16) {
          const uint16_t rounded = to_bf16(right);
          count += std::memcmp(place, &rounded, 2) == 0 ? 0 : 1;
        } else {
          count += std::memcmp(place, &right, 4) == 0 ? 0 : 1;
        }
      });
    }
    return count;
  }
  void save(const std::filesystem::path& path) {
    std::vector<GlobalSlice> slices = adamw_.weight_slices();
    for (const GlobalSlice& slice : adamw_.state_slices()) slices.push_back(slice);
    int64_t bytes = 0;
    for (const GlobalSlice& slice : slices) bytes += static_cast<int64_t>(slice.local.bytes());
    EXPECT_EQ(bytes, shards_.saved_bytes(store_.group_values(0).dtype));
    CheckpointSave saving(context_, path, header_at(3), slices);
    saving.commit(saving.write(), "{}");
  }
  void load(const std::filesystem::path& path) {
    load_checkpoint(context_, path, adamw_.load_slices());
    adamw_.values_from_masters();
  }

 private:
  template <class Use>
  static void visit(const GlobalSlice& slice, Use&& use) {
    for_each_element(slice, [&](int64_t index, std::byte* place) {
      use(*reinterpret_cast<float*>(place), value_of(slice.name, index));
    });
  }
  Arena sized(const ModelShape& model) const {
    Arena dry = Arena::dry();
    const ParameterStore dry_store(table_, model.compute, dry);
    const OptimizerMemory dry_memory(shards_, dry);
    return Arena::real(dry.high_water_bytes());
  }
  const ProcessGrid grid_;
  const ParameterTable table_;
  const ShardLayout shards_;
  Arena arena_;
  const ParameterStore store_;
  const OptimizerMemory memory_;
  GradientSync sync_;
  DistributedAdamW adamw_;
  const Log log_ = Log(1, LogLevel::error);
  CheckpointContext context_;
};

// Null on ranks that the layout does not have.
std::vector<std::unique_ptr<LaidOut>> all_laid_out(const ModelShape& shape) {
  std::vector<std::unique_ptr<LaidOut>> all;
  for (const Layout& layout : layouts()) {
    const bool mine = world().rank() < layout.grid.ranks();
    const Communicator group = world().split(mine ? 0 : 1, world().rank(), "layout");
    all.push_back(mine ? std::make_unique<LaidOut>(group, shape, layout) : nullptr);
  }
  return all;
}

void all_pairs(const ModelShape& shape) {
  const SharedDirectory shared(world());
  const auto all = all_laid_out(shape);
  const auto path = [&](size_t i) { return shared.path() / fmt::format("{}.h5", i); };
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) continue;
    all[i]->make_state();
    all[i]->save(path(i));
  }
  world().barrier();
  const std::string first = read_bytes(path(0));
  int64_t loads = 0;
  for (size_t reader = 0; reader < all.size(); ++reader)
    for (size_t writer = 0; writer < all.size(); ++writer) {
      if (!all[reader]) continue;
      all[reader]->clear();
      ASSERT_GT(all[reader]->wrong(), 0);
      all[reader]->load(path(writer));
      EXPECT_EQ(all[reader]->wrong(), 0)
          << layouts()[writer].text() << " read by " << layouts()[reader].text();
      ++loads;
    }
  for (size_t i = 1; world().rank() == 0 && i < all.size(); ++i)
    EXPECT_TRUE(read_bytes(path(i)) == first) << layouts()[i].text();
  if (world().rank() == 0)
    fmt::print("{} layouts, {} loads, {}\n", all.size(), loads, name_of(shape.compute));
  world().barrier();
}

TEST(CheckpointLayouts, AllPairsInF32) {
  all_pairs(model(true, DType::f32));
}
TEST(CheckpointLayouts, AllPairsInBf16) {
  all_pairs(model(false, DType::bf16));
}

// Another precision: master weights and moments to the bit, values rounded anew.
TEST(CheckpointLayouts, AnotherPrecisionReadsTheSameState) {
  const SharedDirectory shared(world());
  for (const auto& [from, to] :
       {std::pair{DType::f32, DType::bf16}, std::pair{DType::bf16, DType::f32}}) {
    LaidOut writer(world(), model(true, from), layouts()[9]);
    LaidOut reader(world(), model(true, to), layouts()[4]);
    writer.make_state();
    writer.save(shared.path() / "a.h5");
    reader.load(shared.path() / "a.h5");
    EXPECT_EQ(reader.wrong(), 0) << name_of(from);
    world().barrier();
  }
}

}  // namespace
}  // namespace trireme::test
