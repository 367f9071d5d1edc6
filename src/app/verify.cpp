// trireme verify FILE: a checkpoint (.h5) or a dataset (its prefix, .bin or .idx), every byte of
// it.
#include <fmt/format.h>

#include "app/arguments.hpp"
#include "app/commands.hpp"
#include "trireme/data/indexed_dataset.hpp"
#include "trireme/io/checkpoint_file.hpp"

namespace trireme::app {
namespace {

int verify_checkpoint(const std::string& path) {
  const CheckpointHeader header = read_header(path);
  const VerifyReport report = trireme::verify(path);
  require(report.whole(), ExitCode::bad_data, "{} is damaged: {}", path, report.fault());
  fmt::print(
      "{}: whole. Step {}, {} samples, {} tensors, all checksums match, no NaN, no infinity\n",
      path, header.step, header.consumed_samples, report.tensors.size());
  return 0;
}

int verify_tokens(const std::string& path, int64_t vocab) {
  const std::string prefix = dataset_prefix(path);
  const DatasetReport report = verify_dataset(prefix, vocab);
  fmt::print(
      "{}: whole. {} tokens ({}), {} sequences in {} documents ({} empty), longest {}, "
      "largest id {}\n",
      prefix, report.tokens, name_of(report.type), report.sequences, report.documents,
      report.empty_documents, report.longest_sequence, report.largest_id);
  return 0;
}

}  // namespace

int verify(std::span<const std::string> words) {
  const std::string usage = "trireme verify FILE [--vocab N]";
  const Arguments arguments(words, {"vocab"}, usage);
  require(arguments.positions().size() == 1, ExitCode::usage, "one file is needed\nusage: {}",
          usage);
  const std::string& path = arguments.positions()[0];
  if (path.ends_with(".h5")) return verify_checkpoint(path);
  return verify_tokens(path, arguments.number("vocab", 1, 0));
}

}  // namespace trireme::app
