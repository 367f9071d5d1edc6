// The benches run to the end: results are checked before anything is timed, every operation and
// every axis has its line beside an anchor, and bad command lines are refused. No test of speed.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "support/run_program.hpp"

namespace trireme::test {
namespace {

// First words of the lines of the table below its heading (the line that starts with `heading`).
std::vector<std::string> table_names(const std::string& output, const std::string& heading) {
  std::vector<std::string> names;
  std::istringstream lines(output);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    std::string name;
    std::istringstream(line) >> name;
    if (inside && line.ends_with("%")) names.push_back(name);
    if (name == heading) inside = true;
  }
  return names;
}

ProgramResult bench_ops(const std::string& words) {
  return run_command(program_path() + " bench ops --tokens 6 --sequence 3 " + words, 240);
}

// Rows of the table of `bench comm` for one axis and operation: positive time and rates in each.
size_t rows_of(const std::string& output, const std::string& axis, const std::string& operation) {
  const std::regex row("(^|\n)" + axis + " +" + operation +
                       " +[0-9]+ +[0-9]+ +([0-9.]+) +([0-9.e-]+) +([0-9.e-]+) +([0-9.e-]+) +"
                       "([0-9.]+) %");
  size_t count = 0;
  for (std::sregex_iterator it(output.begin(), output.end(), row), end; it != end; ++it) {
    ++count;
    for (const size_t column : {2, 3, 4, 5})
      EXPECT_GT(std::stod((*it)[static_cast<int>(column)]), 0) << it->str();
  }
  return count;
}

TEST(BenchOps, ChecksAndTimesTheOperationsOfBothTypes) {
  for (const std::string type : {"f32", "bf16"}) {
    const ProgramResult result = bench_ops("--only norm --dtype " + type);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_NE(result.output.find("checked    9 operations"), std::string::npos) << result.output;
    const std::vector<std::string> expected = {
        "layer_norm_forward",       "layer_norm_forward_delta", "layer_norm_forward_dropout",
        "layer_norm_backward",      "rms_norm_forward",         "rms_norm_forward_delta",
        "rms_norm_forward_dropout", "rms_norm_backward",        "squared_norm"};
    EXPECT_EQ(table_names(result.output, "operation"), expected) << result.output;
  }
}

TEST(BenchOps, PrintsRateAnchorAndShareOfAProduct) {
  const ProgramResult result = bench_ops("--only gemm_up_forward");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("anchors    copy of"), std::string::npos) << result.output;
  const std::regex row(
      "gemm_up_forward +6 x 3072 x 768 +([0-9.]+) us +([0-9.e-]+) TFLOP/s +([0-9.e-]+) +([0-9.]+) "
      "%");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(result.output, found, row)) << result.output;
  // 2 m n k over the time is the rate.
  const double rate = 2.0 * 6 * 3072 * 768 / (std::stod(found[1]) * 1e-6) * 1e-12;
  EXPECT_NEAR(std::stod(found[2]) / rate, 1, 0.02) << result.output;
}

TEST(BenchOps, RefusesBadCommandLines) {
  for (const std::string words : {"--only nothing_like_it", "--dtype f64", "--shape bert",
                                  "--tokens 7", "--colour red", "extra", "--sequence 0"}) {
    const std::string command = program_path() + " bench ops --sequence 3 " + words;
    const ProgramResult result =
        run_command(words == "--sequence 0" ? program_path() + " bench ops " + words : command);
    EXPECT_EQ(result.exit_code, 64) << words << "\n" << result.output;
    EXPECT_NE(result.output.find("usage"), std::string::npos) << words << "\n" << result.output;
  }
  EXPECT_EQ(run_command(program_path() + " bench").exit_code, 64);
  EXPECT_EQ(run_command(program_path() + " bench nothing").exit_code, 64);
}

TEST(BenchStep, PrintsRatesMemoryAndPhases) {
  const ScratchFolder folder("bench_step");
  std::ofstream(folder / "deck.ini")
      << "[run]\nsteps = 2\n[model]\nfamily = gpt2\nlayers = 2\nhidden = 32\nheads = 2\nvocab = "
         "61\n"
      << "[batch]\nsequence = 16\nglobal = 4\nmicro = 2\n[data]\nkind = mock\n";
  const ProgramResult result =
      run_trireme(2,
                  "bench step " + (folder / "deck.ini").string() +
                      " --grid.tp=2 --grid.sequence_parallel=true --grid.tp_overlap=on --steps 2",
                  240);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  for (const std::string pattern :
       {"step +[0-9.]+ ms .median of 2, fastest [0-9.]+., [0-9]+ tokens/s, loss [0-9.]+",
        "[0-9.e-]+ TFLOP/s a rank", "product +[0-9.e-]+ TFLOP/s", "share +[0-9.]+ %",
        "memory +[0-9.]+ MiB planned and taken on rank 0; [0-9.]+ MiB of [0-9.]+ in use",
        "exposed +tp [0-9.]+ ms a step on the slowest rank, 24 shards beside products",
        "pp 0.00 ms, with", "dp [0-9.]+ ms for gradients, 0.00 ms for values",
        "forward and backward +[0-9.]+ +[0-9.]+", "optimizer +[0-9.]+ +[0-9.]+"})
    EXPECT_TRUE(std::regex_search(result.output, std::regex(pattern))) << pattern << "\n"
                                                                       << result.output;
}

TEST(BenchComm, TimesEveryAxisOfTheGrid) {
  const ProgramResult result =
      run_trireme(4, "bench comm --grid.tp=2 --grid.pp=2 --most 4096", 240);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("checked    14 messages"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("slow ranks"), std::string::npos) << result.output;
  for (const std::string axis : {"tp", "pp"})
    for (const std::string operation : {"all_reduce", "reduce_scatter", "all_gather"})
      EXPECT_EQ(rows_of(result.output, axis, operation), 2u) << axis << " " << operation << "\n"
                                                             << result.output;
  EXPECT_EQ(rows_of(result.output, "pp", "exchange"), 2u) << result.output;
  EXPECT_EQ(rows_of(result.output, "dp", "all_reduce"), 0u) << result.output;
}

// Three ranks: sizes that do not divide, a middle stage with two edges, dp from what is left.
TEST(BenchComm, ChecksOddGroups) {
  const ProgramResult stages =
      run_trireme(3, "bench comm --grid.pp=3 --dtype bf16 --most 4096", 240);
  EXPECT_EQ(stages.exit_code, 0) << stages.output;
  EXPECT_EQ(rows_of(stages.output, "pp", "exchange"), 2u) << stages.output;
  const ProgramResult replicas = run_trireme(3, "bench comm --most 8", 240);
  EXPECT_EQ(replicas.exit_code, 0) << replicas.output;
  EXPECT_EQ(rows_of(replicas.output, "dp", "reduce_scatter"), 1u) << replicas.output;
}

TEST(BenchComm, RefusesGridsThatDoNotFit) {
  const ProgramResult result = run_trireme(2, "bench comm --grid.tp=3");
  EXPECT_EQ(result.exit_code, 78) << result.output;
  EXPECT_EQ(run_trireme(2, "bench comm --grid.dp=1").exit_code, 78);
  EXPECT_EQ(run_trireme(2, "bench comm --most 0").exit_code, 64);
}

}  // namespace
}  // namespace trireme::test
