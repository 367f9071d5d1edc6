// RANKS 1 2 3 4
// Checkpoints hold whole tensors whatever ranks wrote them: any cut loads any other's, the file is
// the same bytes, and a state that is not whole is refused.
#include "trireme/io/checkpoint.hpp"

#include <algorithm>

#include "support/checkpoint_state.hpp"
#include "support/rank_test.hpp"

namespace trireme::test {
namespace {

const Log& quiet() {
  static const Log log(1, LogLevel::error);
  return log;
}

CheckpointContext context() {
  return {world(), device().compute(), quiet()};
}

HeldSlices mine(const std::vector<StateTensor>& state, Cut cut) {
  return cut_state(state, cut, world().rank(), world().size());
}

SaveReport save(const std::filesystem::path& path, const std::vector<StateTensor>& state, Cut cut,
                int64_t step) {
  HeldSlices held = mine(state, cut);
  fill(state, held, step);
  CheckpointSave saving(context(), path, header_at(step), held.slices);
  return saving.commit(saving.write(), "{}");
}

TEST(Checkpoint, AnyCutLoadsAnyOther) {
  const SharedDirectory directory(world());
  const auto state = awkward_state();
  for (const Cut written : all_cuts()) {
    const auto path = directory.path() / "a.h5";
    const SaveReport report = save(path, state, written, 7);
    EXPECT_GT(report.file_bytes, 0);
    EXPECT_EQ(read_header(path), header_at(7));
    for (const Cut wanted : all_cuts()) {
      HeldSlices held = mine(state, wanted);
      load_checkpoint(context(), path, held.slices);
      EXPECT_EQ(wrong_elements(state, held, 7), 0);
    }
  }
}

TEST(Checkpoint, FileIsTheSameBytesForAnyLayout) {
  const SharedDirectory directory(world());
  const auto state = awkward_state();
  const auto first = directory.path() / "first.h5", other = directory.path() / "other.h5";
  save(first, state, Cut::last_rank_only, 3);
  // A group of one rank writes as all ranks do.
  const Communicator alone = world().split(world().rank(), 0, "alone");
  if (world().rank() == 0) {
    HeldSlices held = cut_state(state, Cut::rows, 0, 1);
    fill(state, held, 3);
    CheckpointSave saving({alone, device().compute(), quiet()}, other, header_at(3), held.slices);
    saving.commit(saving.write(), "{}");
    EXPECT_TRUE(read_bytes(first) == read_bytes(other));
  }
  world().barrier();
  for (const Cut cut : all_cuts()) {
    save(other, state, cut, 3);
    EXPECT_TRUE(read_bytes(first) == read_bytes(other));
    world().barrier();
  }
  save(other, state, Cut::rows, 4);
  EXPECT_FALSE(read_bytes(first) == read_bytes(other));
}

// Small tensors start at any byte, so that an element may lie across the end of a 4 MiB piece.
TEST(Checkpoint, PiecesMayEndWithinAnElement) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  const SharedDirectory directory(world());
  std::vector<StateTensor> state;
  for (int i = 0; i < 1500; ++i) {
    state.push_back({fmt::format("weights/{:04}_a", i), {1 + 2 * (i % 2)}, DType::bf16});
    state.push_back({fmt::format("weights/{:04}_b", i), {601 + i % 7}, DType::f32});
  }
  const auto path = directory.path() / "a.h5";
  save(path, state, Cut::rows, 2);
  const CheckpointFile file(path);
  const auto across = [&](const StoredTensor& tensor) {
    const int64_t before = kPiece - tensor.offset;
    return tensor.dtype == DType::f32 && 0 < before && before < tensor.bytes() && before % 4 != 0;
  };
  ASSERT_TRUE(std::ranges::any_of(file.tensors(), across));
  HeldSlices held = mine(state, Cut::flat);
  load_checkpoint(context(), path, held.slices);
  EXPECT_EQ(wrong_elements(state, held, 2), 0);
}

TEST(Checkpoint, EveryRankMayAskForEverything) {
  const SharedDirectory directory(world());
  const auto state = awkward_state();
  const auto path = directory.path() / "a.h5";
  save(path, state, Cut::flat, 11);
  HeldSlices held = cut_state(state, Cut::rows, 0, 1);
  load_checkpoint(context(), path, held.slices);
  EXPECT_EQ(wrong_elements(state, held, 11), 0);
}

TEST(Checkpoint, ConvertsBetweenFloatTypes) {
  const SharedDirectory directory(world());
  const std::vector<StateTensor> state = {{"weights/w", {37, 11}, DType::f32},
                                          {"weights/v", {1000}, DType::bf16}};
  const auto path = directory.path() / "a.h5";
  save(path, state, Cut::rows, 5);
  const std::vector<StateTensor> wanted = {{"weights/w", {37, 11}, DType::bf16},
                                           {"weights/v", {1000}, DType::f32}};
  HeldSlices held = mine(wanted, Cut::flat);
  load_checkpoint(context(), path, held.slices);
  for (const GlobalSlice& slice : held.slices) {
    const StateTensor& stored = tensor_named(state, slice.name);
    for_each_element(slice, [&](int64_t index, const std::byte* place) {
      const uint32_t bits = element_bits(stored, index, 5);
      if (stored.dtype == DType::f32) {
        const uint16_t expected = to_bf16(__builtin_bit_cast(float, bits));
        EXPECT_EQ(std::memcmp(place, &expected, 2), 0);
      } else {
        const float expected = from_bf16(static_cast<uint16_t>(bits));
        EXPECT_EQ(std::memcmp(place, &expected, 4), 0);
      }
    });
  }
}

// Saves with one slice changed on one rank and expects a refusal that leaves nothing behind.
template <class Change>
std::string refused(const std::filesystem::path& directory, ExitCode code, Change&& change) {
  const auto state = awkward_state();
  HeldSlices held = mine(state, Cut::rows);
  fill(state, held, 1);
  if (world().rank() == world().size() - 1) change(held);
  const std::string text = error_text(code, [&] {
    CheckpointSave saving(context(), directory / "a.h5", header_at(1), held.slices);
    saving.commit(saving.write(), "{}");
  });
  world().barrier();
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  world().barrier();
  return text;
}

GlobalSlice& slice_named(HeldSlices& held, const std::string& name) {
  for (GlobalSlice& slice : held.slices)
    if (slice.name == name) return slice;
  ADD_FAILURE() << name;
  return held.slices.front();
}

TEST(Checkpoint, RefusesAStateThatIsNotWhole) {
  const SharedDirectory directory(world());
  const auto hole = refused(directory.path(), ExitCode::internal, [](HeldSlices& held) {
    GlobalSlice& slice = slice_named(held, "weights/matrix");
    slice.local.shape.extent[0] -= 1;
  });
  EXPECT_NE(hole.find("weights/matrix [301, 131]: element [300, 0] is given by no rank"),
            std::string::npos)
      << hole;
  const auto twice = refused(directory.path(), ExitCode::internal, [](HeldSlices& held) {
    held.slices.push_back(slice_named(held, "adam_v/slab"));
  });
  EXPECT_NE(twice.find("adam_v/slab [2, 3, 20011]: element"), std::string::npos) << twice;
  if (world().size() > 1) {
    const auto dropped = refused(directory.path(), ExitCode::internal, [](HeldSlices& held) {
      std::erase_if(held.slices, [](const GlobalSlice& s) { return s.name == "master/matrix"; });
    });
    EXPECT_NE(dropped.find("master/matrix [301, 131]: element"), std::string::npos) << dropped;
  }
  const auto outside = refused(directory.path(), ExitCode::internal, [](HeldSlices& held) {
    slice_named(held, "weights/matrix").origin.extent[0] += 1;
  });
  EXPECT_NE(outside.find("not inside"), std::string::npos) << outside;
  const auto name = refused(directory.path(), ExitCode::internal, [](HeldSlices& held) {
    slice_named(held, "adam_v/slab").name = "../adam_v";
  });
  EXPECT_NE(name.find("'../adam_v'"), std::string::npos) << name;
}

TEST(Checkpoint, RefusesNonFiniteValues) {
  const SharedDirectory directory(world());
  const auto nan = refused(directory.path(), ExitCode::internal, [](HeldSlices& held) {
    const uint32_t bits = 0x7fc00000u;
    std::memcpy(slice_named(held, "master/matrix").local.data + 40, &bits, 4);
  });
  EXPECT_NE(nan.find("master/matrix (1 NaN, 0 infinite)"), std::string::npos) << nan;
  const auto infinite = refused(directory.path(), ExitCode::internal, [](HeldSlices& held) {
    const uint16_t bits = 0xff80u;
    std::memcpy(slice_named(held, "weights/matrix").local.data + 4, &bits, 2);
  });
  EXPECT_NE(infinite.find("weights/matrix (0 NaN, 1 infinite)"), std::string::npos) << infinite;
}

TEST(Checkpoint, RefusesAnotherModel) {
  const SharedDirectory directory(world());
  const auto path = directory.path() / "a.h5";
  save(path, {{"weights/a", {8, 3}}, {"weights/b", {5}}, {"adam_m/a", {8, 3}}}, Cut::rows, 2);
  const auto load = [&](const std::vector<StateTensor>& wanted, ExitCode code) {
    HeldSlices held = mine(wanted, Cut::rows);
    return error_text(code, [&] { load_checkpoint(context(), path, held.slices); });
  };
  const auto shape = load({{"weights/a", {8, 4}}, {"weights/b", {5}}}, ExitCode::bad_config);
  EXPECT_NE(shape.find("weights/a is [8, 3] in it, [8, 4] here"), std::string::npos) << shape;
  const auto missing = load({{"weights/a", {8, 3}}, {"weights/c", {5, 2}}}, ExitCode::bad_config);
  EXPECT_NE(missing.find("it has no weights/c [5, 2]"), std::string::npos) << missing;
  const auto surplus = load({{"weights/a", {8, 3}}}, ExitCode::bad_config);
  EXPECT_NE(surplus.find("it holds weights/b [5]"), std::string::npos) << surplus;
  // Weights without optimizer state is a choice, not another model.
  HeldSlices held = mine({{"weights/a", {8, 3}}, {"weights/b", {5}}}, Cut::flat);
  load_checkpoint(context(), path, held.slices);
  EXPECT_EQ(wrong_elements({{"weights/a", {8, 3}}, {"weights/b", {5}}}, held, 2), 0);
  error_text(ExitCode::no_input,
             [&] { load_checkpoint(context(), directory.path() / "none.h5", held.slices); });
}

// A failure of one rank's writing reaches all ranks and leaves the older file alone.
TEST(Checkpoint, OneRanksFailureIsEverybodys) {
  const SharedDirectory directory(world());
  const auto state = awkward_state();
  const auto path = directory.path() / "a.h5";
  save(path, state, Cut::rows, 1);
  const std::string before = read_bytes(path);
  HeldSlices held = mine(state, Cut::rows);
  fill(state, held, 2);
  const std::string text = error_text(ExitCode::io, [&] {
    CheckpointSave saving(context(), path, header_at(2), held.slices);
    WriteResult result = saving.write();
    if (world().rank() == world().size() - 1) {
      result.ok = false;
      result.fault = "the disk of the last rank broke";
    }
    saving.commit(result, "{}");
  });
  EXPECT_NE(text.find("the disk of the last rank broke"), std::string::npos) << text;
  world().barrier();
  EXPECT_TRUE(read_bytes(path) == before);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".tmp"));
}

}  // namespace
}  // namespace trireme::test
