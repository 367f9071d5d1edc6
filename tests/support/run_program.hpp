// Starts the real program under mpirun and reads what it leaves, for regression tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::test {

struct ProgramResult {
  int exit_code = -1;
  std::string output;  // standard output and error
  double seconds = 0;
};

// Runs a shell command with a time limit; a run that exceeds it has exit code 124.
ProgramResult run_command(const std::string& command, double limit_seconds = 60);
// mpirun -n RANKS trireme WORDS...; the program comes from TRIREME_PROGRAM.
ProgramResult run_trireme(int ranks, const std::string& words, double limit_seconds = 60);
std::string launch_command(int ranks, const std::string& words);
std::string program_path();

// A folder of its own for one test, emptied at the start and removed at the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name);
  ~ScratchFolder();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct MetricsLine {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, learning_rate = 0;
  int64_t consumed_samples = 0;
  bool operator==(const MetricsLine&) const = default;
};
// Training records of metrics.jsonl.
std::vector<MetricsLine> read_metrics(const std::filesystem::path& run_directory);
// step -> validation loss.
std::map<int64_t, double> read_validation(const std::filesystem::path& run_directory);

// All tensors of a checkpoint whose name starts with `prefix`, as f32, by name without the prefix.
std::map<std::string, std::vector<float>> read_tensors(const std::filesystem::path& file,
                                                       const std::string& prefix);
std::filesystem::path checkpoint_path(const std::filesystem::path& run_directory, int64_t step);
std::string file_bytes(const std::filesystem::path& file);

// A dataset of `documents` documents over [0, vocab): sequences that a small model learns a little
// of.
void write_dataset(const std::filesystem::path& prefix, int vocab, int documents);

double norm_of(const std::vector<float>& values);
// |a - b| / max(|b|, floor).
double distance(const std::vector<float>& a, const std::vector<float>& b, double floor);

}  // namespace trireme::test
