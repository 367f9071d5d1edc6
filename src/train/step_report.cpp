#include "trireme/train/step_report.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}d {:02}h", s / 86400, s / 3600 % 24);
}

std::string rate_text(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M", per_second / 1e6);
  if (per_second >= 1e4) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

// JSON has no NaN: a value that is not finite is null.
nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

}  // namespace

std::string status_header() {
  return fmt::format("{:>15} {:>5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9}", "step", "done",
                     "loss", "norm", "rate", "ms", "tokens/s", "TFLOP/s", "left");
}

std::string status_line(const StepReport& r) {
  const double done =
      r.steps > 0 ? 100.0 * static_cast<double>(r.step) / static_cast<double>(r.steps) : 100;
  return fmt::format("{:>15} {:>4.0f}% {:>9.4f} {:>9.4f} {:>9.2e} {:>9.1f} {:>9} {:>8.3f} {:>9}{}",
                     fmt::format("{}/{}", r.step, r.steps), done, r.loss, r.grad_norm,
                     r.learning_rate, r.step_seconds * 1e3, rate_text(r.tokens_per_second),
                     r.tflops_per_rank, duration_text(r.eta_seconds),
                     r.skipped ? "  skipped: the gradient is not finite" : "");
}

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t step) : path_(path) {
  std::string kept, line;
  std::ifstream in(path);
  while (std::getline(in, line)) {
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || record.value("step", int64_t{-1}) > step) break;
    kept += line + "\n";
  }
  std::error_code ignored;
  if (kept.empty() && !std::filesystem::exists(path, ignored)) return;
  if (!kept.empty() && kept.size() == std::filesystem::file_size(path, ignored)) return;
  const std::filesystem::path temporary = path.string() + ".tmp";
  std::ofstream out(temporary, std::ios::trunc);
  out << kept;
  out.close();
  const bool written = out.good();
  std::error_code fault;
  if (written) std::filesystem::rename(temporary, path, fault);
  if (!written || fault) std::filesystem::remove(temporary, ignored);
  require(written && !fault, ExitCode::io,
          "cannot cut {} back to step {}: make space on its disk, or choose another run.directory",
          path.string(), step);
}

bool MetricsFile::append(const StepReport& r) {
  nlohmann::ordered_json record;
  record["step"] = r.step;
  record["consumed_samples"] = r.consumed_samples;
  record["consumed_tokens"] = r.consumed_tokens;
  record["loss"] = number(r.loss);
  record["grad_norm"] = number(r.grad_norm);
  record["learning_rate"] = r.learning_rate;
  record["step_seconds"] = r.step_seconds;
  record["tokens_per_second"] = r.tokens_per_second;
  record["tflops_per_rank"] = r.tflops_per_rank;
  record["mfu"] = r.mfu ? number(*r.mfu) : nlohmann::ordered_json();
  if (r.skipped) record["skipped"] = true;
  return write(record.dump());
}

bool MetricsFile::append_validation(int64_t step, const std::string& name, double loss,
                                    int64_t tokens) {
  nlohmann::ordered_json record;
  record["step"] = step;
  record[name + "_loss"] = number(loss);
  record[name + "_tokens"] = tokens;
  return write(record.dump());
}

bool MetricsFile::write(const std::string& line) {
  const std::string text = line + "\n";
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return false;
  const bool whole = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(file);
  return whole;
}

}  // namespace trireme
