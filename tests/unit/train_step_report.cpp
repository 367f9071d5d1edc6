// Status lines have fixed columns, metrics are one JSON object a line, and a resume cuts them back.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/checkpoint_bytes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/train/step_report.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;

StepReport report_of(int64_t step) {
  StepReport r;
  r.step = step;
  r.steps = 1000;
  r.consumed_samples = 8 * step;
  r.consumed_tokens = 160 * step;
  r.loss = 2.5;
  r.grad_norm = 0.75;
  r.learning_rate = 3e-4;
  r.step_seconds = 0.1234;
  r.tokens_per_second = 123456;
  r.tflops_per_rank = 0.5;
  r.eta_seconds = 3723;
  return r;
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(StatusLine, HasTheColumnsOfItsHeader) {
  EXPECT_EQ(
      status_header(),
      "           step  done      loss      norm      rate        ms  tokens/s  TFLOP/s      left");
  EXPECT_EQ(
      status_line(report_of(10)),
      "        10/1000    1%    2.5000    0.7500  3.00e-04     123.4    123.5k    0.500   1:02:03");
  StepReport late = report_of(1000);
  late.tokens_per_second = 2.345e6;
  late.eta_seconds = 0;
  EXPECT_EQ(
      status_line(late),
      "      1000/1000  100%    2.5000    0.7500  3.00e-04     123.4     2.35M    0.500      0:00");
  late.eta_seconds = 200000;
  late.skipped = true;
  EXPECT_TRUE(status_line(late).ends_with("2d 07h  skipped: the gradient is not finite"));
}

TEST(MetricsFile, HoldsOneObjectALine) {
  const ScratchDirectory folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  MetricsFile file(path, 0);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(file.append(report_of(1)));
  StepReport bad = report_of(2);
  bad.loss = std::nan("");
  bad.grad_norm = std::numeric_limits<double>::infinity();
  bad.skipped = true;
  bad.mfu = 0.41;
  EXPECT_TRUE(file.append(bad));
  EXPECT_TRUE(file.append_validation(2, "validation", 1.875, 320));
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(json::parse(lines[0]),
            json::parse(R"({"step":1,"consumed_samples":8,"consumed_tokens":160,"loss":2.5,
                            "grad_norm":0.75,"learning_rate":3e-4,"step_seconds":0.1234,
                            "tokens_per_second":123456.0,"tflops_per_rank":0.5,"mfu":null})"));
  const json second = json::parse(lines[1]);
  EXPECT_TRUE(second["loss"].is_null());
  EXPECT_TRUE(second["grad_norm"].is_null());
  EXPECT_EQ(second["skipped"], true);
  EXPECT_EQ(second["mfu"], 0.41);
  EXPECT_EQ(json::parse(lines[2]),
            json::parse(R"({"step":2,"validation_loss":1.875,"validation_tokens":320})"));
}

// A job that died left steps behind the checkpoint, and half a line.
TEST(MetricsFile, IsCutBackToTheStepOfAResume) {
  const ScratchDirectory folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 5; ++step) {
      file.append(report_of(step));
      if (step == 3) file.append_validation(step, "validation", 2, 10);
    }
  }
  std::ofstream(path, std::ios::app) << R"({"step":6,"consumed_sam)";
  const std::vector<std::string> before = lines_of(path);
  { const MetricsFile kept(path, 5); }
  EXPECT_EQ(lines_of(path), std::vector<std::string>(before.begin(), before.end() - 1));
  MetricsFile file(path, 3);
  EXPECT_EQ(lines_of(path), std::vector<std::string>(before.begin(), before.begin() + 4));
  file.append(report_of(4));
  EXPECT_EQ(lines_of(path).size(), 5u);
  { const MetricsFile fresh(path, 0); }
  EXPECT_TRUE(lines_of(path).empty());
}

TEST(MetricsFile, ACutThatFailsLeavesTheFileAlone) {
  const ScratchDirectory folder;
  const std::filesystem::path path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    file.append(report_of(1));
    file.append(report_of(2));
  }
  const std::vector<std::string> before = lines_of(path);
  std::filesystem::create_directory(path.string() + ".tmp");
  EXPECT_THROW(MetricsFile(path, 1), Error);
  EXPECT_EQ(lines_of(path), before);
}

TEST(MetricsFile, AFailedWriteIsReportedNotThrown) {
  const ScratchDirectory folder;
  MetricsFile file(folder.path() / "missing" / "metrics.jsonl", 0);
  EXPECT_FALSE(file.append(report_of(1)));
}

}  // namespace
}  // namespace trireme::test
