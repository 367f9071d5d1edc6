// Which samples a rank trained on, for comparing runs: one JSON line a step, with the numbers of
// the samples and a sum over the tokens of each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>

namespace trireme {

struct LoggedSample {
  int64_t number = 0;
  uint64_t sum = 0;  // of its T+1 tokens
};

// FNV-1a over the bytes of the ids.
uint64_t sum_of_tokens(std::span<const int32_t> tokens);

class SampleLog {
 public:
  // Writes to DIRECTORY/samples/from_STEP_rank_RANK.jsonl, behind what is there. Throws Error(io).
  SampleLog(const std::filesystem::path& directory, int64_t step, int rank);
  // Takes the lines of steps after `step` out of every file in DIRECTORY/samples. One rank, before
  // any rank opens its file. Throws Error(io).
  static void cut(const std::filesystem::path& directory, int64_t step);
  // {"step":3,"dp":1,"samples":[40,41],"sums":["0011223344556677",...]}
  void append(int64_t step, int dp, std::span<const LoggedSample> samples);

 private:
  std::ofstream file_;
};

}  // namespace trireme
