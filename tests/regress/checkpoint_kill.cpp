// Kills jobs that save without pause (one rank, all ranks, the launcher) at random moments. After
// each kill every file that has a checkpoint's name is whole and holds its step's bits, the newest
// is as new as the job had said, and the next job goes on from it by itself and cleans up.
//
// TRIREME_KILLS sets the number of kills.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "support/checkpoint_bytes.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/io/checkpoint_directory.hpp"

namespace trireme::test {
namespace {

constexpr int kRanks = 3;

const std::vector<StateTensor>& state() {
  static const std::vector<StateTensor> tensors = {
      {"weights/w", {301, 131}, DType::bf16}, {"master/w", {301, 131}}, {"adam_m/w", {20'011}}};
  return tensors;
}

void fill_and_save(CheckpointDirectory& directory, const Communicator& world, int64_t step) {
  HeldSlices held = cut_state(state(), Cut::flat, world.rank(), world.size());
  fill(state(), held, step);
  directory.save(header_at(step), held.slices, "{}", 2);
}

// The job: resumes, then saves for ever. Run by mpirun, never as a test of its own.
TEST(CheckpointKill, DISABLED_Job) {
  int count = 0;
  char** words = nullptr;
  MpiSession session(count, words);
  const std::filesystem::path run = std::getenv("TRIREME_KILL_RUN");
  const Communicator& world = session.world();
  write_bytes(run / fmt::format("process.{}", world.rank()), fmt::format("{}\n", getpid()));
  Device device({});
  const Log log(world.rank(), LogLevel::warning);
  const auto lease = take_run_lease(world, run, log);
  const CheckpointContext context{world, device.compute(), log};
  CheckpointDirectory directory(context, run, lease.get());
  int64_t step = 0;
  if (const auto newest = directory.newest_whole()) {
    step = read_header(*newest).step;
    HeldSlices held = cut_state(state(), Cut::rows, world.rank(), world.size());
    load_checkpoint(context, *newest, held.slices, Trust::verified);
    ASSERT_EQ(wrong_elements(state(), held, step), 0);
  }
  while (true) {
    fill_and_save(directory, world, ++step);
    if (world.rank() == 0) write_bytes(run / "saved", fmt::format("{}\n", step));
  }
}

int64_t number_in(const std::filesystem::path& path) {
  const std::string text = read_bytes(path);
  return text.empty() ? 0 : std::atoll(text.c_str());
}

bool alive(pid_t process) {
  return process > 0 && ::kill(process, 0) == 0;
}

template <class Done>
bool wait_until(Done&& done, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class Job {
 public:
  explicit Job(const std::filesystem::path& run) : run_(run) {
    for (int rank = 0; rank < kRanks; ++rank) std::filesystem::remove(process_file(rank));
    const std::string ranks = fmt::format("{}", kRanks);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string out = (run.parent_path() / "output").string();
    launcher_ = ::fork();
    if (launcher_ != 0) return;
    ::setenv("TRIREME_KILL_RUN", run.c_str(), 1);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, 1);
    ::dup2(file, 2);
    ::execlp("mpirun", "mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks.c_str(),
             self.c_str(), "--gtest_also_run_disabled_tests",
             "--gtest_filter=CheckpointKill.DISABLED_Job", nullptr);
    ::_exit(127);
  }
  ~Job() {
    for (int rank = 0; rank < kRanks; ++rank) kill_rank(rank);
    ::kill(launcher_, SIGKILL);
    wait_for_end();
  }
  pid_t process(int rank) const { return static_cast<pid_t>(number_in(process_file(rank))); }
  void kill_rank(int rank) const {
    if (process(rank) > 0) ::kill(process(rank), SIGKILL);
  }
  void kill_launcher() const { ::kill(launcher_, SIGKILL); }
  bool wait_for_end() {
    if (!waited_) ::waitpid(launcher_, nullptr, 0);
    waited_ = true;
    return wait_until(
        [&] {
          for (int rank = 0; rank < kRanks; ++rank)
            if (alive(process(rank))) return false;
          return true;
        },
        30);
  }

 private:
  std::filesystem::path process_file(int rank) const {
    return run_ / fmt::format("process.{}", rank);
  }
  std::filesystem::path run_;
  pid_t launcher_ = -1;
  bool waited_ = false;
};

// Steps with a checkpoint's name, newest first; each must be whole and right.
std::vector<int64_t> checked_steps(const std::filesystem::path& run) {
  std::vector<int64_t> steps;
  for (const NamedCheckpoint& found : list_checkpoints(run / "checkpoints")) {
    steps.push_back(found.step);
    EXPECT_EQ(verify(found.path).fault(), "") << found.path;
    const CheckpointFile file(found.path);
    EXPECT_EQ(file.header(), header_at(found.step));
    for (const StoredTensor& stored : file.tensors()) {
      const StateTensor& tensor = tensor_named(state(), stored.name);
      HeldSlices held;
      held.add(tensor, shape_like(tensor.whole, {0, 0}), tensor.whole);
      const TensorView& local = held.slices[0].local;
      file.read(stored, 0, {local.data, local.bytes()});
      EXPECT_EQ(wrong_elements(state(), held, found.step), 0) << found.path << stored.name;
    }
  }
  return steps;
}

TEST(CheckpointKill, AnyMomentLeavesTheNewestWhole) {
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun here";
  const char* wanted = std::getenv("TRIREME_KILLS");
  const int kills = wanted == nullptr ? 8 : std::atoi(wanted);
  const ScratchDirectory scratch;
  const auto run = scratch.path() / "run";
  std::filesystem::create_directories(run);
  std::mt19937 random(std::random_device{}());
  int64_t newest = 0;
  for (int i = 0; i < kills; ++i) {
    Job job(run);
    const int64_t before = number_in(run / "saved");
    ASSERT_TRUE(wait_until([&] { return number_in(run / "saved") > before; }, 60))
        << "kill " << i << " of the job before; its output:\n"
        << read_bytes(scratch.path() / "output");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
    const int kind = static_cast<int>(random() % 5);
    if (kind < kRanks) job.kill_rank(kind);
    if (kind == 3) job.kill_launcher();
    for (int rank = 0; kind == 4 && rank < kRanks; ++rank) job.kill_rank(rank);
    ASSERT_TRUE(job.wait_for_end());
    const int64_t said = number_in(run / "saved");
    const std::vector<int64_t> steps = checked_steps(run);
    ASSERT_FALSE(steps.empty());
    EXPECT_GE(steps[0], std::max(said, newest)) << "kill " << i;
    EXPECT_LE(steps.size(), 3u + 2u);
    newest = steps[0];
  }
  // No leftovers pile up: at most those of the last kill.
  int64_t temporary = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints"))
    temporary += entry.path().extension() == ".tmp" ? 1 : 0;
  EXPECT_LE(temporary, 2);
}

}  // namespace
}  // namespace trireme::test
