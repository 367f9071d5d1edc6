// RANKS 1 2 4
// The directory of checkpoints: the newest whole one is found, broken ones are named, pruning never
// takes what is needed, and a disk that is full or cannot be written is an error on all ranks that
// leaves older files alone.
#include <sys/mount.h>

#include <chrono>
#include <cstdio>

#include "support/checkpoint_state.hpp"
#include "support/rank_test.hpp"
#include "trireme/io/checkpoint_directory.hpp"

namespace trireme::test {
namespace {

// What the code under test says to the user, on rank 0.
class CapturedLog {
 public:
  CapturedLog() : file_(std::tmpfile()), log_(world().rank(), LogLevel::info, file_) {}
  ~CapturedLog() { std::fclose(file_); }
  CheckpointContext context() const { return {world(), device().compute(), log_}; }
  const Log& log() const { return log_; }
  std::string text() const {
    std::fseek(file_, 0, SEEK_END);
    std::string all(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(all.data(), 1, all.size(), file_), all.size());
    return all;
  }

 private:
  std::FILE* file_;
  Log log_;
};

const std::vector<StateTensor>& small_state() {
  static const std::vector<StateTensor> state = {
      {"weights/w", {37, 11}, DType::bf16}, {"master/w", {37, 11}}, {"adam_m/w", {20011}}};
  return state;
}

SaveReport save(CheckpointDirectory& directory, int64_t step, int keep,
                const std::vector<StateTensor>& state = small_state()) {
  HeldSlices held = cut_state(state, Cut::flat, world().rank(), world().size());
  fill(state, held, step);
  return directory.save(header_at(step), held.slices, "{\"grid\": \"test\"}", keep);
}

// Collective: rank 0 prunes while the others go on.
std::vector<int64_t> steps_in(const CheckpointDirectory& directory) {
  world().barrier();
  std::vector<int64_t> steps;
  for (const NamedCheckpoint& file : list_checkpoints(directory.path())) steps.push_back(file.step);
  return steps;
}

using Steps = std::vector<int64_t>;

TEST(CheckpointDirectory, KeepsTheLastAndTheOneResumedFrom) {
  const SharedDirectory run(world());
  const CapturedLog captured;
  CheckpointDirectory directory(captured.context(), run.path(), nullptr);
  EXPECT_FALSE(directory.newest_whole().has_value());
  for (int64_t step = 1; step <= 6; ++step) {
    save(directory, step, 2);
    EXPECT_EQ(steps_in(directory), step == 1 ? Steps({1}) : Steps({step, step - 1}));
    world().barrier();
  }
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "step_000000006.json"));
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "step_000000001.json"));
  EXPECT_EQ(directory.newest_whole(), directory.path_of(6));
  // 6 is protected now: it stays beside the newest two.
  save(directory, 7, 1);
  EXPECT_EQ(steps_in(directory), Steps({7, 6}));
  world().barrier();
  save(directory, 8, 1);
  EXPECT_EQ(steps_in(directory), Steps({8, 6}));
  world().barrier();
  save(directory, 9, 0);
  EXPECT_EQ(steps_in(directory), Steps({9, 8, 6}));
}

TEST(CheckpointDirectory, ALaterStepOfAnotherHistoryNeitherCountsNorGoes) {
  const SharedDirectory run(world());
  const CapturedLog captured;
  CheckpointDirectory directory(captured.context(), run.path(), nullptr);
  save(directory, 5000, 2);
  if (world().rank() == 0) {
    write_bytes(directory.path() / "notes.txt", "mine");
    write_bytes(directory.path() / "step_12.h5", "not ours: too few digits");
  }
  save(directory, 100, 2);
  save(directory, 200, 2);
  save(directory, 300, 2);
  EXPECT_EQ(steps_in(directory), Steps({5000, 300, 200}));
  world().barrier();
  directory.set_aside_after(300);
  EXPECT_EQ(directory.newest_whole(), directory.path_of(300));
  EXPECT_TRUE(std::filesystem::exists(directory.path_of(5000).string() + ".superseded"));
  EXPECT_EQ(read_bytes(directory.path() / "notes.txt"), "mine");
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "step_12.h5"));
}

TEST(CheckpointDirectory, SkipsBrokenOnesAndSaysWhy) {
  const SharedDirectory run(world());
  const CapturedLog captured;
  CheckpointDirectory directory(captured.context(), run.path(), nullptr);
  for (int64_t step = 1; step <= 4; ++step) save(directory, step, 0);
  if (world().rank() == 0) {
    std::string bytes = read_bytes(directory.path_of(4));
    const StoredTensor tensor = *CheckpointFile(directory.path_of(4)).find("adam_m/w");
    bytes[static_cast<size_t>(tensor.offset) + 4001] ^= 0x10;
    write_bytes(directory.path_of(4), bytes);
    std::filesystem::resize_file(directory.path_of(3),
                                 std::filesystem::file_size(directory.path_of(3)) - 1);
  }
  world().barrier();
  EXPECT_EQ(directory.newest_whole(), directory.path_of(2));
  if (world().rank() == 0) {
    const std::string said = captured.text();
    EXPECT_NE(said.find("step_000000004.h5"), std::string::npos) << said;
    EXPECT_NE(said.find("adam_m/w does not match its checksum"), std::string::npos) << said;
    EXPECT_NE(said.find("step_000000003.h5"), std::string::npos) << said;
    EXPECT_EQ(said.find("step_000000002.h5"), std::string::npos) << said;
    for (const int64_t step : {1, 2}) std::filesystem::resize_file(directory.path_of(step), 100);
  }
  world().barrier();
  const std::string text = error_text(ExitCode::bad_data, [&] { (void)directory.newest_whole(); });
  EXPECT_NE(text.find("none of the 4 checkpoints"), std::string::npos) << text;
}

TEST(CheckpointDirectory, RemovesWhatDeadJobsLeft) {
  const SharedDirectory run(world());
  const CapturedLog captured;
  {
    CheckpointDirectory directory(captured.context(), run.path(), nullptr);
    save(directory, 3, 0);
  }
  const auto files = run.path() / "checkpoints";
  if (world().rank() == 0)
    for (const char* name : {"step_000000004.h5.tmp", "step_000000004.json",
                             "step_000000005.json.tmp", "probe.77.tmp", "other.tmp"})
      write_bytes(files / name, "left");
  world().barrier();
  CheckpointDirectory directory(captured.context(), run.path(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(files / "step_000000004.h5.tmp"));
  EXPECT_FALSE(std::filesystem::exists(files / "step_000000004.json"));
  EXPECT_FALSE(std::filesystem::exists(files / "step_000000005.json.tmp"));
  EXPECT_FALSE(std::filesystem::exists(files / "probe.77.tmp"));
  EXPECT_TRUE(std::filesystem::exists(files / "other.tmp"));
  EXPECT_TRUE(std::filesystem::exists(files / "step_000000003.json"));
  EXPECT_EQ(directory.newest_whole(), directory.path_of(3));
}

// Every saved step loads with its own bits after a chain of saves, under the lease.
TEST(CheckpointDirectory, SavesUnderTheLeaseOnly) {
  const SharedDirectory run(world());
  const CapturedLog captured;
  const auto lease = take_run_lease(world(), run.path(), captured.log());
  CheckpointDirectory directory(captured.context(), run.path(), lease.get());
  save(directory, 1, 0);
  const std::string refused =
      error_text(ExitCode::io, [&] { (void)take_run_lease(world(), run.path(), captured.log()); });
  EXPECT_NE(refused.find("is in use by process"), std::string::npos) << refused;
  world().barrier();
  if (world().rank() == 0) std::filesystem::remove(lease->path());
  world().barrier();
  const std::string lost = error_text(ExitCode::io, [&] { save(directory, 2, 0); });
  EXPECT_NE(lost.find("lost its lease"), std::string::npos) << lost;
  world().barrier();
  EXPECT_EQ(steps_in(directory), Steps({1}));
}

// A tmpfs of its own for one test; rank 0 mounts and unmounts. Collective.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& path, const std::string& options, unsigned long flags = 0)
      : path_(path) {
    int64_t mounted = 0;
    if (world().rank() == 0) {
      std::filesystem::create_directories(path);
      mounted = ::mount("none", path.c_str(), "tmpfs", flags, options.c_str()) == 0;
    }
    mounted_ = world().max(mounted) != 0;
  }
  ~SmallDisk() {
    world().barrier();
    if (world().rank() == 0 && mounted_) ::umount(path_.c_str());
    world().barrier();
  }
  bool mounted() const { return mounted_; }
  bool make_read_only() const {
    const bool done = world().rank() != 0 ||
                      ::mount("none", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0;
    return world().all(done);
  }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

TEST(CheckpointDirectory, AFullDiskIsAnErrorThatLeavesOlderFilesAlone) {
  const SharedDirectory run(world());
  const CapturedLog captured;
  const SmallDisk disk(run.path() / "disk", "size=8m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  CheckpointDirectory directory(captured.context(), run.path() / "disk", nullptr);
  save(directory, 1, 0);
  const std::string before = read_bytes(directory.path_of(1));
  // Free space from almost enough to nothing: every size of disk refuses, in time, and cleans up.
  for (int filled = 0; filled < 6; ++filled) {
    if (world().rank() == 0)
      write_bytes(run.path() / "disk" / fmt::format("fill{}", filled), std::string(1 << 20, 'x'));
    world().barrier();
    const auto start = std::chrono::steady_clock::now();
    const std::vector<StateTensor> large = {{"weights/w", {1 << 20}}, {"adam_m/w", {300000}}};
    const std::string text =
        error_text(ExitCode::io, [&] { save(directory, 2 + filled, 1, large); });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
    world().barrier();
    EXPECT_EQ(steps_in(directory), Steps({1}));
    EXPECT_FALSE(std::filesystem::exists(directory.path_of(2 + filled).string() + ".tmp"));
    world().barrier();
  }
  EXPECT_TRUE(read_bytes(directory.path_of(1)) == before);
  EXPECT_EQ(directory.newest_whole(), directory.path_of(1));
  const std::string at_start = error_text(ExitCode::io, [&] {
    if (world().rank() == 0)
      write_bytes(run.path() / "disk" / "rest", std::string(size_t{20} << 20, 'x'));
    world().barrier();
    CheckpointDirectory again(captured.context(), run.path() / "disk", nullptr);
  });
  EXPECT_NE(at_start.find("No space left on device"), std::string::npos) << at_start;
}

TEST(CheckpointDirectory, AReadOnlyDirectoryIsFoundAtTheStart) {
  const SharedDirectory run(world());
  const CapturedLog captured;
  const SmallDisk disk(run.path() / "disk", "size=8m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  {
    CheckpointDirectory directory(captured.context(), run.path() / "disk", nullptr);
    save(directory, 1, 0);
  }
  ASSERT_TRUE(disk.make_read_only());
  const std::string text = error_text(ExitCode::io, [&] {
    CheckpointDirectory again(captured.context(), run.path() / "disk", nullptr);
  });
  EXPECT_NE(text.find("Read-only file system"), std::string::npos) << text;
  const std::string lease = error_text(
      ExitCode::io, [&] { (void)take_run_lease(world(), run.path() / "disk", captured.log()); });
  EXPECT_NE(lease.find("Read-only file system"), std::string::npos) << lease;
  // Reading still works.
  HeldSlices held = cut_state(small_state(), Cut::rows, world().rank(), world().size());
  load_checkpoint(captured.context(), run.path() / "disk/checkpoints/step_000000001.h5",
                  held.slices);
  EXPECT_EQ(wrong_elements(small_state(), held, 1), 0);
}

}  // namespace
}  // namespace trireme::test
