// trireme verify FILE: a checkpoint (.h5) or a dataset (its prefix, .bin or .idx), every byte of
// it.
#include <fmt/format.h>

#include "app/arguments.hpp"
#include "app/commands.hpp"
#include "trireme/data/indexed_dataset.hpp"
#include "trireme/io/checkpoint_file.hpp"
#include "trireme/io/tensor_statistics.hpp"

namespace trireme::app {
namespace {

// Everything that is wrong, not only the first of it.
int verify_checkpoint(const std::string& path) {
  const CheckpointFile file(path);
  const VerifyReport report = file.judge(file.scan_share(0, 1));
  for (const VerifyReport::Tensor& tensor : report.tensors)
    if (!tensor.sum_matches || tensor.nans + tensor.infinities > 0)
      fmt::print("  {}: checksum {}, {} NaN, {} infinite\n", tensor.name,
                 tensor.sum_matches ? "matches" : "does not match", tensor.nans, tensor.infinities);
  require(report.whole(), ExitCode::bad_data, "{} is damaged: {}", path, report.fault());
  const std::string versions = read_beside(path).versions;
  fmt::print(
      "{}: whole. Format version {}, step {}, {} samples, {} tensors, {} bytes, all checksums "
      "match, no NaN, no infinity{}\n",
      path, file.version(), file.header().step, file.header().consumed_samples,
      report.tensors.size(), file.file_bytes(), versions.empty() ? "" : "; written by " + versions);
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
