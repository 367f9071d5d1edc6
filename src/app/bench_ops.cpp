// trireme bench ops: every operation at the sizes of a model's layer, first checked against plain
// arithmetic, then timed turn by turn with an anchor: a large copy for what moves bytes, a large
// square product for what computes. A share above 100 % of the copy means that the data of an
// operation stays in the caches.
#include <fmt/format.h>

#include "app/arguments.hpp"
#include "app/bench.hpp"
#include "app/bench_case.hpp"
#include "app/bench_timing.hpp"
#include "trireme/base/log.hpp"
#include "trireme/ops/startup.hpp"

namespace trireme::app {
namespace {

DType dtype_of(const Arguments& arguments, const std::string& usage) {
  const std::string name =
      arguments.optional("dtype").value_or(device_memory_is_host() ? "f32" : "bf16");
  require(name == "f32" || name == "bf16", ExitCode::usage, "--dtype {}: f32 or bf16\nusage: {}",
          name, usage);
  return name == "f32" ? DType::f32 : DType::bf16;
}

// GPT-2 124M (Radford et al., 2019; vocabulary padded to a multiple of 128) and Llama 3 8B (Dubey
// et al., 2024, table 3).
BenchSizes sizes_of(const Arguments& arguments, const std::string& usage) {
  const std::string shape = arguments.optional("shape").value_or("gpt2");
  require(shape == "gpt2" || shape == "llama", ExitCode::usage,
          "--shape {}: gpt2 or llama\nusage: {}", shape, usage);
  const bool gpt2 = shape == "gpt2", host = device_memory_is_host();
  BenchSizes s = gpt2 ? BenchSizes{.hidden = 768,
                                   .heads = 12,
                                   .kv_heads = 12,
                                   .head_size = 64,
                                   .ffn = 3072,
                                   .vocab = 50257,
                                   .padded_vocab = 50304,
                                   .positions = 1024,
                                   .bias = true}
                      : BenchSizes{.hidden = 4096,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .head_size = 128,
                                   .ffn = 14336,
                                   .vocab = 128256,
                                   .padded_vocab = 128256,
                                   .gated = true};
  s.type = dtype_of(arguments, usage);
  const int64_t on_host = gpt2 ? 512 : 64, on_device = gpt2 ? 16384 : 8192;
  s.tokens = arguments.number("tokens", 1, host ? on_host : on_device);
  const int64_t sequence = host ? 256 : gpt2 ? 1024 : 4096;
  s.sequence = arguments.number("sequence", 1, std::min(sequence, s.tokens));
  require(s.tokens % s.sequence == 0, ExitCode::usage,
          "--tokens {} is not a multiple of --sequence {}\nusage: {}", s.tokens, s.sequence, usage);
  require(!gpt2 || s.sequence <= s.positions, ExitCode::usage,
          "--sequence {}: GPT-2 has {} positions\nusage: {}", s.sequence, s.positions, usage);
  s.optimizer_elements = host ? int64_t{1} << 23 : int64_t{1} << 27;
  return s;
}

std::vector<OpRow> selected_rows(const BenchSizes& sizes, const std::string& only,
                                 const std::string& usage) {
  std::vector<OpRow> rows;
  std::string names;
  for (const auto& kind :
       {product_rows, attention_rows, norm_rows, pointwise_rows, end_rows, optimizer_rows})
    for (OpRow& row : kind(sizes)) {
      names += " " + row.name;
      if (row.name.find(only) != std::string::npos) rows.push_back(std::move(row));
    }
  require(!rows.empty(), ExitCode::usage,
          "--only {}: no operation has this in its name:{}\nusage: {}", only, names, usage);
  return rows;
}

// Drops the rows whose data does not fit, and says so.
void check_all(BenchData& data, std::vector<OpRow>& rows, const Log& log) {
  std::vector<OpRow> fitting;
  for (OpRow& row : rows) {
    try {
      row.make(data).check();
      fitting.push_back(std::move(row));
    } catch (const TooLarge& fault) {
      log.info("{} is left out: it needs another {} MiB, {} are free; use fewer --tokens", row.name,
               fault.bytes >> 20, fault.free_bytes >> 20);
    }
    data.clear();
  }
  rows = std::move(fitting);
}

void time_row(BenchData& data, const OpRow& row, Anchor& anchor, const Log& log) {
  const OpCase op = row.make(data);
  const bool computes = op.flops > 0;
  const double work = computes ? op.flops : op.bytes;
  const int64_t calls = calls_of_a_batch(data.stream(), op.call);
  std::vector<double> seconds, anchors, shares;
  for (int turn = 0; turn < kTurns; ++turn) {
    anchors.push_back(anchor.rate());
    seconds.push_back(seconds_a_call(data.stream(), op.call, calls));
    shares.push_back(work / seconds.back() / anchors.back());
  }
  const double time = median(seconds), unit = computes ? 1e12 : 1e9;
  log.info("{:28} {:22} {:12.1f} us {:10.4g} {:8} {:10.4g} {:9.1f} %", row.name, op.size,
           1e6 * time, work / time / unit, computes ? "TFLOP/s" : "GB/s", median(anchors) / unit,
           100 * median(shares));
  data.clear();
}

}  // namespace

int bench_ops(MpiSession& session, std::vector<std::string> words, const std::string& usage) {
  const Arguments arguments(words, {"dtype", "shape", "tokens", "sequence", "only"}, usage);
  require(arguments.positions().empty(), ExitCode::usage, "{} is not expected\nusage: {}",
          arguments.positions().empty() ? "" : arguments.positions()[0], usage);
  require(session.world().size() == 1, ExitCode::usage,
          "bench ops times one device: start it as one rank\nusage: {}", usage);
  const BenchSizes sizes = sizes_of(arguments, usage);
  std::vector<OpRow> rows = selected_rows(sizes, arguments.optional("only").value_or(""), usage);
  Device device(DeviceOptions{});
  const Log log(0, LogLevel::info, stdout);
  log.info("{}; {}", device.description(), math_description());
  log.info("{}, {} tokens in sequences of {}, hidden {}, ffn {}, vocabulary {}",
           name_of(sizes.type), sizes.tokens, sizes.sequence, sizes.hidden, sizes.ffn,
           sizes.padded_vocab);
  BenchData data(device);
  check_all(data, rows, log);
  log.info("checked    {} operations against plain arithmetic in f64", rows.size());
  Anchor copy = Anchor::copy(device);
  Anchor product = Anchor::product(device, sizes.type);
  log.info("anchors    {} (bytes read and written); {}; turn by turn, medians of {} turns",
           copy.name(), product.name(), kTurns);
  log.info("{:28} {:22} {:>15} {:>10} {:8} {:>10} {:>11}", "operation", "size", "time", "rate", "",
           "anchor", "share");
  for (const OpRow& row : rows) {
    const bool computes = row.name.starts_with("gemm") || row.name.starts_with("attention");
    time_row(data, row, computes ? product : copy, log);
  }
  return 0;
}

}  // namespace trireme::app
