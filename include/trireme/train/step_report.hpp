// What a step reports: a status line for people, and one JSON object a line for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme {

struct StepReport {
  int64_t step = 0;              // completed steps, from 1
  int64_t steps = 0;             // of the whole run
  int64_t consumed_samples = 0;  // after the step
  int64_t consumed_tokens = 0;
  double loss = 0;           // nats per counted token of the global batch
  double grad_norm = 0;      // before clipping
  double learning_rate = 0;  // applied in this step
  bool skipped = false;      // the gradient was not finite: no update
  double step_seconds = 0;
  double tokens_per_second = 0;  // of the whole job
  double tflops_per_rank = 0;    // model FLOPs, causal attention at half
  std::optional<double> mfu;     // of the named peak; nothing where no peak is known
  double eta_seconds = 0;
};

// One line of fixed columns; `header()` names them.
std::string status_header();
std::string status_line(const StepReport& report);

// Appends JSON lines to a file; only the rank that owns the file makes one.
class MetricsFile {
 public:
  // Cuts the file back to the records of steps up to `step` (a resume), whole lines only; missing
  // is empty. Throws Error(io).
  MetricsFile(const std::filesystem::path& path, int64_t step);
  // A failed write (a full disk, a broken pipe) never ends the run: false, once with a warning
  // upstream.
  bool append(const StepReport& report);
  bool append_validation(int64_t step, const std::string& name, double loss, int64_t tokens);

 private:
  bool write(const std::string& line);
  std::filesystem::path path_;
};

}  // namespace trireme
