// The CPU and the CUDA build of the program as two hands of one: the same initial bits, checkpoints
// that either reads, the same losses, bit-equal resume and replicas on the GPU. Skips without a
// GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "support/run_program.hpp"

namespace trireme::test {
namespace {

class TwinsTest : public ::testing::Test {
 protected:
  TwinsTest() : folder_("twins"), gpu_(program_path()) {
    const char* cpu = std::getenv("TRIREME_CPU_PROGRAM");
    cpu_ = cpu == nullptr ? "" : cpu;
  }

  void SetUp() override {
    if (run_command("nvidia-smi -L").exit_code != 0) GTEST_SKIP() << "no GPU here";
    ASSERT_FALSE(cpu_.empty()) << "TRIREME_CPU_PROGRAM is not set: run through ctest";
    write_dataset(folder_ / "data", 61, 200);
    std::ofstream deck(folder_ / "deck.ini");
    deck << "[run]\nsteps = 6\nseed = 7\n"
         << "[model]\nfamily = llama\nlayers = 4\nhidden = 64\nheads = 4\nkv_heads = 2\n"
         << "ffn = 172\nvocab = 61\ndropout = 0.1\n"
         << "[batch]\nsequence = 32\nglobal = 8\nmicro = 2\n"
         << "[optimizer]\nlearning_rate = 1e-3\nepsilon = 1e-3\n"
         << "[schedule]\nkind = cosine\nwarmup = 2\ndecay = 60\n"
         << "[data]\nkind = indexed\npath = " << (folder_ / "data").string()
         << "\nsplit = 90,10,0\n[checkpoint]\nkeep = 0\n[fault]\ndeadline = 60\n";
  }

  void run(const std::string& program, int ranks, const std::string& directory,
           const std::string& words) {
    const ProgramResult result = run_command(
        fmt::format("OMP_NUM_THREADS=2 mpirun --oversubscribe --bind-to none -n {} {} train {} "
                    "--run.directory={} {}",
                    ranks, program, (folder_ / "deck.ini").string(), (folder_ / directory).string(),
                    words),
        120);
    ASSERT_EQ(result.exit_code, 0) << words << "\n" << result.output;
  }

  void expect_close(const std::string& directory, const std::string& other, double limit) {
    const auto have = read_metrics(folder_ / directory), want = read_metrics(folder_ / other);
    ASSERT_EQ(have.size(), want.size());
    for (size_t i = 0; i < have.size(); ++i) {
      EXPECT_NEAR(have[i].loss / want[i].loss, 1, limit) << directory << ", step " << have[i].step;
      EXPECT_NEAR(have[i].grad_norm / want[i].grad_norm, 1, limit) << directory;
    }
  }

  ScratchFolder folder_;
  std::string gpu_, cpu_;
};

TEST_F(TwinsTest, InitialCheckpointIsTheSameFile) {
  for (const char* compute : {"f32", "bf16"}) {
    const std::string words = fmt::format("--run.steps=0 --precision.compute={}", compute);
    run(cpu_, 1, std::string("cpu_") + compute, words);
    run(gpu_, 2, std::string("gpu_") + compute, words + " --grid.tp=2");
    EXPECT_TRUE(file_bytes(checkpoint_path(folder_ / (std::string("cpu_") + compute), 0)) ==
                file_bytes(checkpoint_path(folder_ / (std::string("gpu_") + compute), 0)))
        << compute;
  }
}

TEST_F(TwinsTest, LossesAgreeAndCheckpointsAreExchanged) {
  run(cpu_, 1, "cpu", "--checkpoint.every=3");
  run(gpu_, 1, "gpu", "--checkpoint.every=3");
  expect_close("gpu", "cpu", 1e-4);
  // Half a run on one, the other half on the other.
  run(cpu_, 2, "mixed", "--run.steps=3 --grid.pp=2");
  run(gpu_, 2, "mixed", "--grid.tp=2");
  expect_close("mixed", "cpu", 1e-4);
  run(gpu_, 1, "back", "--run.steps=3");
  run(cpu_, 4, "back", "--grid.tp=2 --grid.dp=2");
  expect_close("back", "cpu", 1e-4);
}

TEST_F(TwinsTest, ResumingIsBitEqual) {
  for (const char* compute : {"f32", "bf16"}) {
    const std::string words =
        fmt::format("--grid.tp=2 --precision.compute={} --checkpoint.every=6", compute);
    run(gpu_, 2, std::string("straight_") + compute, words);
    run(gpu_, 2, std::string("resumed_") + compute, words + " --run.steps=2");
    run(gpu_, 2, std::string("resumed_") + compute, words);
    EXPECT_TRUE(file_bytes(checkpoint_path(folder_ / (std::string("straight_") + compute), 6)) ==
                file_bytes(checkpoint_path(folder_ / (std::string("resumed_") + compute), 6)))
        << compute;
    EXPECT_EQ(read_metrics(folder_ / (std::string("straight_") + compute)),
              read_metrics(folder_ / (std::string("resumed_") + compute)));
  }
}

// Shards that travel beside the products change nothing but rounding, and that the same in each
// run.
TEST_F(TwinsTest, OverlapOverTpGivesTheSameNumbers) {
  const std::string words = "--grid.sequence_parallel=true --run.steps=20 ";
  run(cpu_, 1, "one", "--run.steps=20");
  for (const int tp : {2, 4}) {
    const std::string grid = fmt::format("{}--grid.tp={} ", words, tp);
    const auto of = [tp](const char* name) { return fmt::format("{}_{}", name, tp); };
    run(gpu_, tp, of("serial"), grid + "--grid.tp_overlap=off");
    run(gpu_, tp, of("beside"), grid + "--grid.tp_overlap=on");
    run(gpu_, tp, of("again"), grid + "--grid.tp_overlap=on");
    expect_close(of("serial"), "one", 1e-4);
    expect_close(of("beside"), "one", 1e-4);
    EXPECT_EQ(read_metrics(folder_ / of("beside")), read_metrics(folder_ / of("again")));
  }
}

// The run itself compares all copies bit by bit and ends with 70 where they differ.
TEST_F(TwinsTest, ReplicasStayBitEqualForFiftySteps) {
  for (const char* layout : {"--grid.dp=2 --grid.tp=2", "--grid.dp=4 --optimizer.zero=0",
                             "--grid.tp=4 --grid.sequence_parallel=true"})
    run(gpu_, 4, fmt::format("replicas_{}", layout[9]) + layout[7],
        fmt::format("--run.steps=50 --precision.compute=bf16 --fault.check_replicas=10 {}",
                    layout));
}

}  // namespace
}  // namespace trireme::test
