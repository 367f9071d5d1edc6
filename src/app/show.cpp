// trireme show FILE: what is in a checkpoint, from the file alone.
#include <fmt/format.h>

#include <algorithm>

#include "app/arguments.hpp"
#include "app/commands.hpp"
#include "trireme/io/checkpoint_file.hpp"
#include "trireme/io/tensor_statistics.hpp"

namespace trireme::app {
namespace {

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void print_section(const char* name, const std::string& text) {
  if (!text.empty()) fmt::print("\n{}\n{}", name, text);
}

void print_header(const CheckpointFile& file) {
  const CheckpointHeader& h = file.header();
  fmt::print("file              {}, {} bytes, format version {}\n", file.path().string(),
             file.file_bytes(), file.version());
  fmt::print("step              {}\n", h.step);
  fmt::print("consumed          {} samples, {} tokens\n", h.consumed_samples, h.consumed_tokens);
  fmt::print("updates           {}, of {} samples\n", h.updates, h.update_samples);
  fmt::print("seed              {}\n", h.seed);
}

// What lies beside the file, for people: absent or unreadable is no fault.
void print_beside(const std::filesystem::path& path) {
  const BesideCheckpoint beside = read_beside(path);
  if (!beside.grid.empty()) fmt::print("written on        {}\n", beside.grid);
  if (!beside.versions.empty()) fmt::print("written by        {}\n", beside.versions);
}

void print_groups(const CheckpointFile& file) {
  fmt::print("\n{:<18}{:>8}{:>16}{:>16}\n", "group", "tensors", "elements", "size");
  std::string group;
  int64_t tensors = 0, elements = 0, bytes = 0;
  const auto print = [&] {
    if (tensors > 0)
      fmt::print("{:<18}{:>8}{:>16}{:>16}\n", group, tensors, elements, mebibytes(bytes));
    tensors = elements = bytes = 0;
  };
  for (const StoredTensor& tensor : file.tensors()) {
    const std::string mine = tensor.name.substr(0, tensor.name.find('/'));
    if (mine != group) print();
    group = mine;
    ++tensors;
    elements += tensor.whole.elements();
    bytes += tensor.bytes();
  }
  print();
}

void print_tensors(const CheckpointFile& file, const std::string& only, bool statistics) {
  size_t width = 10;
  for (const StoredTensor& tensor : file.tensors()) width = std::max(width, tensor.name.size());
  fmt::print("\n{:<{}} {:<5}{:<20}{:>14}", "tensor", width, "type", "shape", "bytes");
  if (statistics)
    fmt::print("{:>12}{:>12}{:>12}{:>12}{:>10}{:>6}{:>6}", "mean", "deviation", "least", "greatest",
               "zeros", "NaN", "inf");
  fmt::print("\n");
  for (const StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.starts_with(only)) continue;
    fmt::print("{:<{}} {:<5}{:<20}{:>14}", tensor.name, width, name_of(tensor.dtype),
               tensor.whole.text(), tensor.bytes());
    if (statistics) {
      const TensorStatistics s = statistics_of(file, tensor);
      fmt::print("{:>12.4g}{:>12.4g}{:>12.4g}{:>12.4g}{:>10}{:>6}{:>6}", s.mean, s.deviation,
                 s.least, s.greatest, s.zeros, s.nans, s.infinities);
    }
    fmt::print("\n");
  }
}

}  // namespace

int show(std::span<const std::string> words) {
  const std::string usage = "trireme show FILE [--only GROUP/PREFIX] [--statistics 0]";
  const Arguments arguments(words, {"only", "statistics"}, usage);
  require(arguments.positions().size() == 1, ExitCode::usage, "one file is needed\nusage: {}",
          usage);
  const std::filesystem::path path = arguments.positions()[0];
  const CheckpointFile file(path);
  print_header(file);
  print_beside(path);
  const CheckpointHeader& h = file.header();
  for (const auto& [name, text] :
       {std::pair<const char*, const std::string&>{"model", h.model_section},
        {"optimizer", h.optimizer_section},
        {"data", h.data_section},
        {"schedule (lengths in samples)", h.schedule_section}})
    print_section(name, text);
  print_groups(file);
  print_tensors(file, arguments.optional("only").value_or(""),
                arguments.number("statistics", 0, 1) != 0);
  return 0;
}

}  // namespace trireme::app
