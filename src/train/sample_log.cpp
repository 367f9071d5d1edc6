#include "trireme/train/sample_log.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"
#include "trireme/train/step_report.hpp"

namespace trireme {

uint64_t sum_of_tokens(std::span<const int32_t> tokens) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const std::byte byte : std::as_bytes(tokens))
    sum = (sum ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
  return sum;
}

SampleLog::SampleLog(const std::filesystem::path& directory, int64_t step, int rank) {
  const std::filesystem::path folder = directory / "samples";
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const auto path = folder / fmt::format("from_{:09}_rank_{:05}.jsonl", step, rank);
  file_.open(path, std::ios::app);
  require(file_.is_open(), ExitCode::io, "{}: cannot write it (log.samples)", path.string());
}

void SampleLog::cut(const std::filesystem::path& directory, int64_t step) {
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "samples", missing))
    const MetricsFile cut_back(entry.path(), step);
}

void SampleLog::append(int64_t step, int dp, std::span<const LoggedSample> samples) {
  std::string numbers, sums;
  for (const LoggedSample& sample : samples) {
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ",", sample.number);
    sums += fmt::format("{}\"{:016x}\"", sums.empty() ? "" : ",", sample.sum);
  }
  file_ << fmt::format("{{\"step\":{},\"dp\":{},\"samples\":[{}],\"sums\":[{}]}}\n", step, dp,
                       numbers, sums)
        << std::flush;
}

}  // namespace trireme
