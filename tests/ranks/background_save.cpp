// RANKS 1 2 4
// A save beside training holds the state of the moment when it was started, whatever happens to the
// state afterwards, with any amount of snapshot memory; its failures reach all ranks.
#include "trireme/io/background_save.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <thread>

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

HeldSlices held_at(int64_t step) {
  const auto state = awkward_state();
  HeldSlices held = cut_state(state, Cut::flat, world().rank(), world().size());
  fill(state, held, step);
  return held;
}

int64_t bytes_of(const HeldSlices& held) {
  int64_t bytes = 0;
  for (const GlobalSlice& slice : held.slices) bytes += static_cast<int64_t>(slice.local.bytes());
  return bytes;
}

// As the trainer does it: a vote at each step, the next turn when nobody is busy.
SaveReport train_until_saved(BackgroundSave& saves, HeldSlices& held, int64_t& step) {
  while (true) {
    fill(awkward_state(), held, ++step);
    if (world().any(saves.busy())) continue;
    if (const auto report = saves.advance()) return *report;
  }
}

std::string synchronous_bytes(const SharedDirectory& directory, int64_t step) {
  CheckpointDirectory plain(context(), directory.path() / "plain", nullptr);
  const HeldSlices held = held_at(step);
  const auto path = plain.save(header_at(step), held.slices, "{}", 0).path;
  return read_bytes(path);
}

TEST(BackgroundSave, HoldsTheMomentOfItsStart) {
  const SharedDirectory shared(world());
  const std::string want = synchronous_bytes(shared, 7);
  const std::string other = synchronous_bytes(shared, 8);
  HeldSlices held = held_at(7);
  const int64_t all = bytes_of(held);
  for (const int64_t memory : {all, all - 1, all / 2, int64_t{1000}, int64_t{0}}) {
    CheckpointDirectory directory(context(), shared.path() / "run", nullptr);
    BackgroundSave saves(context(), directory, memory);
    fill(awkward_state(), held, 7);
    saves.start(header_at(7), held.slices, "{}", 0);
    EXPECT_TRUE(saves.in_flight());
    EXPECT_EQ(saves.step(), 7);
    int64_t step = 7;
    const SaveReport report = train_until_saved(saves, held, step);
    EXPECT_FALSE(saves.in_flight());
    EXPECT_TRUE(read_bytes(report.path) == want) << memory;
    EXPECT_FALSE(read_bytes(report.path) == other);
    EXPECT_GT(report.pause_seconds, 0);
    EXPECT_LE(report.fastest_seconds, report.slowest_seconds);
    // Whole slices are copied or written at once, so that the half is one up to a slice.
    const int64_t total = world().sum(all), streamed = report.streamed_bytes;
    EXPECT_EQ(streamed == 0, memory == all);
    EXPECT_EQ(streamed == total, memory == 0);
    EXPECT_GE(streamed, total - world().sum(memory));
    world().barrier();
  }
}

// Many saves while the state changes all the time: each file holds one step, exactly.
TEST(BackgroundSave, ManyWhileTheStateChanges) {
  const SharedDirectory shared(world());
  CheckpointDirectory directory(context(), shared.path(), nullptr);
  HeldSlices held = held_at(0);
  BackgroundSave saves(context(), directory, bytes_of(held));
  int64_t step = 1;
  for (int i = 0; i < 25; ++i) {
    fill(awkward_state(), held, step);
    const int64_t saved = step;
    saves.start(header_at(saved), held.slices, "{}", 2);
    const SaveReport report = train_until_saved(saves, held, step);
    EXPECT_EQ(report.path, directory.path_of(saved));
    const HeldSlices loaded = held_at(-1);
    load_checkpoint(context(), report.path, loaded.slices);
    EXPECT_EQ(wrong_elements(awkward_state(), loaded, saved), 0);
  }
  EXPECT_EQ(list_checkpoints(directory.path()).size(), 2u);
}

TEST(BackgroundSave, OneAtATimeAndNoneLeftBehind) {
  const SharedDirectory shared(world());
  CheckpointDirectory directory(context(), shared.path(), nullptr);
  HeldSlices held = held_at(3);
  {
    BackgroundSave saves(context(), directory, bytes_of(held));
    saves.start(header_at(3), held.slices, "{}", 0);
    error_text(ExitCode::internal, [&] { saves.start(header_at(4), held.slices, "{}", 0); });
  }
  world().barrier();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

// The last rank may not write behind 512 KiB of a file: its thread fails, or the part that is
// written during the pause does.
TEST(BackgroundSave, AFailureOfOneRankReachesAll) {
  const SharedDirectory shared(world());
  CheckpointDirectory directory(context(), shared.path(), nullptr);
  const HeldSlices held = held_at(1);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {512 << 10, before.rlim_max};
  const auto kept = ::signal(SIGXFSZ, SIG_IGN);
  for (const int64_t memory : {bytes_of(held), int64_t{0}}) {
    BackgroundSave saves(context(), directory, memory);
    saves.start(header_at(1), held.slices, "{}", 0);
    saves.finish();
    if (world().rank() == world().size() - 1) ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string text = error_text(ExitCode::io, [&] {
      saves.start(header_at(2), held.slices, "{}", 0);
      saves.finish();
    });
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_NE(text.find("File too large"), std::string::npos) << text;
    EXPECT_FALSE(saves.in_flight());
    world().barrier();
    EXPECT_FALSE(std::filesystem::exists(directory.path_of(2)));
    EXPECT_FALSE(std::filesystem::exists(directory.path_of(2).string() + ".tmp"));
    EXPECT_EQ(verify(directory.path_of(1)).fault(), "");
    world().barrier();
    saves.start(header_at(2), held.slices, "{}", 0);
    saves.finish();
    EXPECT_EQ(verify(directory.path_of(2)).fault(), "");
    world().barrier();
    if (world().rank() == 0) std::filesystem::remove(directory.path_of(2));
    world().barrier();
  }
  ::signal(SIGXFSZ, kept);
}

}  // namespace
}  // namespace trireme::test
