#include "support/run_program.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "trireme/data/indexed_writer.hpp"
#include "trireme/io/checkpoint_file.hpp"

namespace trireme::test {

ProgramResult run_command(const std::string& command, double limit_seconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::string whole =
      fmt::format("timeout -k 5 {} bash -c '{}' 2>&1", limit_seconds, command);
  ProgramResult result;
  std::FILE* pipe = ::popen(whole.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start: " + whole);
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), pipe))
    result.output.append(buffer, n);
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::string program_path() {
  const char* path = std::getenv("TRIREME_PROGRAM");
  if (path == nullptr) throw std::runtime_error("TRIREME_PROGRAM is not set: run through ctest");
  return path;
}

std::string launch_command(int ranks, const std::string& words) {
  return fmt::format("OMP_NUM_THREADS=1 mpirun --oversubscribe --bind-to none -n {} {} {}", ranks,
                     program_path(), words);
}

ProgramResult run_trireme(int ranks, const std::string& words, double limit_seconds) {
  return run_command(launch_command(ranks, words), limit_seconds);
}

ScratchFolder::ScratchFolder(const std::string& name)
    : path_(std::filesystem::temp_directory_path() /
            fmt::format("trireme_{}_{}", name, ::getpid())) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace {

std::vector<nlohmann::json> read_records(const std::filesystem::path& run_directory) {
  std::ifstream file(run_directory / "metrics.jsonl");
  std::vector<nlohmann::json> records;
  std::string line;
  while (std::getline(file, line)) records.push_back(nlohmann::json::parse(line));
  return records;
}

double number(const nlohmann::json& value) {
  return value.is_null() ? std::nan("") : value.get<double>();
}

}  // namespace

std::vector<MetricsLine> read_metrics(const std::filesystem::path& run_directory) {
  std::vector<MetricsLine> lines;
  for (const nlohmann::json& r : read_records(run_directory))
    if (r.contains("loss"))
      lines.push_back({r.at("step"), number(r.at("loss")), number(r.at("grad_norm")),
                       number(r.at("learning_rate")), r.at("consumed_samples")});
  return lines;
}

std::map<int64_t, double> read_validation(const std::filesystem::path& run_directory) {
  std::map<int64_t, double> losses;
  for (const nlohmann::json& r : read_records(run_directory))
    if (r.contains("validation_loss")) losses[r.at("step")] = number(r.at("validation_loss"));
  return losses;
}

std::map<std::string, std::vector<float>> read_tensors(const std::filesystem::path& path,
                                                       const std::string& prefix) {
  const CheckpointFile file(path);
  std::map<std::string, std::vector<float>> tensors;
  for (const StoredTensor& t : file.tensors()) {
    if (!t.name.starts_with(prefix)) continue;
    std::vector<float>& values = tensors[t.name.substr(prefix.size())];
    values.resize(static_cast<size_t>(t.whole.elements()));
    if (t.dtype == DType::f32) {
      file.read(t, 0, std::as_writable_bytes(std::span(values)));
      continue;
    }
    std::vector<uint16_t> halves(values.size());
    file.read(t, 0, std::as_writable_bytes(std::span(halves)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = from_bf16(halves[i]);
  }
  return tensors;
}

std::filesystem::path checkpoint_path(const std::filesystem::path& run_directory, int64_t step) {
  return run_directory / "checkpoints" / fmt::format("step_{:09}.h5", step);
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void write_dataset(const std::filesystem::path& prefix, int vocab, int documents) {
  IndexedDatasetWriter writer({prefix.string(), TokenType::u16});
  uint32_t state = 12345;
  for (int d = 0; d < documents; ++d) {
    std::vector<int32_t> tokens;
    auto token = static_cast<int32_t>(d % vocab);
    for (int i = 0; i < 60 + d % 37; ++i) {
      state = state * 1664525u + 1013904223u;
      token =
          state >> 30 == 0 ? static_cast<int32_t>((state >> 8) % vocab) : (token * 3 + 1) % vocab;
      tokens.push_back(token);
    }
    writer.append(tokens);
    writer.end_document();
  }
  writer.commit();
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b, double floor) {
  if (a.size() != b.size()) return 1e30;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(sum) / std::max(norm_of(b), floor);
}

}  // namespace trireme::test
