// trireme bench comm: latency and bandwidth of every axis of a process grid by message size, first
// checked on every rank, then timed turn by turn with a local copy; each link between neighbours;
// and each rank's time for one product, so that a slow rank is named. Collective.
#include <fmt/format.h>

#include <chrono>

#include "app/arguments.hpp"
#include "app/bench.hpp"
#include "app/bench_messages.hpp"
#include "app/bench_timing.hpp"
#include "app/deck_arguments.hpp"
#include "app/links.hpp"
#include "app/start_up.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/base/log.hpp"
#include "trireme/config/layout.hpp"

namespace trireme::app {
namespace {

constexpr int64_t kLatencyBytes = 8;

// Removes `--name VALUE` or `--name=VALUE`.
std::optional<std::string> take_option(std::vector<std::string>& words, const std::string& name,
                                       const std::string& usage) {
  const auto found = std::ranges::find_if(
      words, [&](const std::string& word) { return word == name || word.starts_with(name + "="); });
  if (found == words.end()) return std::nullopt;
  if (found->size() > name.size()) {
    const std::string value = found->substr(name.size() + 1);
    words.erase(found);
    return value;
  }
  require(found + 1 != words.end(), ExitCode::usage, "{} needs a value\nusage: {}", name, usage);
  const std::string value = *(found + 1);
  words.erase(found, found + 2);
  return value;
}

// From a deck where one is given, else from the keys of the grid alone; dp is what is left.
GridShape shape_of(const std::vector<std::string>& words, const Communicator& world,
                   const std::string& usage) {
  const bool has_deck =
      std::ranges::any_of(words, [](const std::string& word) { return !word.starts_with("--"); });
  if (has_deck)
    return grid_shape(read_deck_together(deck_arguments(words, usage), world).settings,
                      world.size());
  const Arguments keys(words, {"grid.tp", "grid.cp", "grid.pp", "grid.dp"}, usage);
  const auto extent = [&](const char* key, int64_t otherwise) {
    const int64_t value = keys.number(key, 1, otherwise);
    require(value <= world.size(), ExitCode::bad_config, "{} = {}, but there are {} ranks", key,
            value, world.size());
    return static_cast<int>(value);
  };
  GridShape shape{
      .tp = extent("grid.tp", 1), .cp = extent("grid.cp", 1), .pp = extent("grid.pp", 1)};
  shape.dp = extent("grid.dp", std::max(1, world.size() / shape.ranks()));
  check_ranks(shape, world.size());
  return shape;
}

struct CommOptions {
  GridShape shape;
  DType type = DType::f32;
  int64_t most = 0;
};

CommOptions options_of(std::vector<std::string> words, const Communicator& world,
                       const std::string& usage) {
  CommOptions options;
  const std::string type = take_option(words, "--dtype", usage).value_or("f32");
  require(type == "f32" || type == "bf16", ExitCode::usage, "--dtype {}: f32 or bf16\nusage: {}",
          type, usage);
  options.type = type == "f32" ? DType::f32 : DType::bf16;
  options.most = int64_t{1} << (device_memory_is_host() ? 20 : 28);
  if (const auto most = take_option(words, "--most", usage)) {
    const std::vector<std::string> word{"--most=" + *most};
    options.most = Arguments(word, {"most"}, usage).number("most", kLatencyBytes);
  }
  options.shape = shape_of(words, world, usage);
  return options;
}

// 8 bytes for the latency, then 4 KiB, 16 KiB, ... up to the largest.
std::vector<int64_t> message_sizes(int64_t most) {
  std::vector<int64_t> sizes{kLatencyBytes};
  for (int64_t bytes = 4096; bytes <= std::min(most, int64_t{1} << 28); bytes *= 4)
    sizes.push_back(bytes);
  return sizes;
}

void check_all(const ProcessGrid& grid, Messages& messages, const std::vector<MessageKind>& kinds,
               const CommOptions& options) {
  for (const MessageKind& kind : kinds)
    for (const int64_t bytes : message_sizes(options.most)) {
      const std::string fault = messages.fault(kind, messages.elements(kind, bytes));
      grid.world().require_all(fault.empty(), ExitCode::internal, fault);
    }
}

// Times batches of one kind of message: the slowest rank's time counts.
class MessageTimer {
 public:
  MessageTimer(const Communicator& world, Messages& messages, const MessageKind& kind, int64_t n)
      : world_(world), messages_(messages), kind_(kind), elements_(n) {
    batch();  // warm-up
    for (;;) {
      const double seconds = batch();
      if (seconds > kBatchSeconds) return;
      const double factor = std::clamp(1.3 * kBatchSeconds / std::max(seconds, 1e-7), 1.2, 100.0);
      calls_ = static_cast<int64_t>(static_cast<double>(calls_) * factor) + 1;
    }
  }
  double seconds_a_call() { return batch() / static_cast<double>(calls_); }

 private:
  // The same on every rank, so that all ranks choose the same number of calls.
  double batch() {
    messages_.reset(elements_);
    world_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls_; ++i) messages_.call(kind_, elements_);
    messages_.synchronize();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    return world_.max(passed.count());
  }
  const Communicator& world_;
  Messages& messages_;
  const MessageKind& kind_;
  int64_t elements_;
  int64_t calls_ = 1;
};

void time_message(const Communicator& world, Messages& messages, const MessageKind& kind,
                  int64_t bytes, Anchor& copy, const Log& log) {
  const int64_t n = messages.elements(kind, bytes);
  const auto whole = static_cast<double>(n) * static_cast<double>(size_of(messages.type()));
  MessageTimer timer(world, messages, kind, n);
  std::vector<double> seconds, copies, shares;
  const double factor = bus_factor(kind.what, kind.ranks);
  for (int turn = 0; turn < kTurns; ++turn) {
    world.barrier();
    copies.push_back(world.min(copy.rate()));
    seconds.push_back(timer.seconds_a_call());
    shares.push_back(factor * whole / seconds.back() / copies.back());
  }
  const double time = median(seconds);
  log.info("{:8} {:15} {:5} {:>12.0f} {:12.1f} {:10.4g} {:10.4g} {:10.4g} {:9.2f} %", kind.axis,
           name_of(kind.what), kind.ranks, whole, 1e6 * time, whole / time * 1e-9,
           factor * whole / time * 1e-9, median(copies) * 1e-9, 100 * median(shares));
}

}  // namespace

int bench_comm(MpiSession& session, std::vector<std::string> words, const std::string& usage) {
  const Communicator& world = session.world();
  const CommOptions options = options_of(std::move(words), world, usage);
  Device device(device_options(session, Settings{}));
  const ProcessGrid grid(world, options.shape, options.shape.tp, device);
  const Log log(world.rank(), LogLevel::info, stdout);
  log.info("{}, {} rank{} on {} host{}; {}; {}", options.shape.text(), world.size(),
           world.size() == 1 ? "" : "s", session.nodes(), session.nodes() == 1 ? "" : "s",
           device.description(), session.library_version());
  Messages messages(grid, device, options.type, options.most);
  const std::vector<MessageKind> kinds = message_kinds(grid);
  const std::vector<int64_t> sizes = message_sizes(options.most);
  check_all(grid, messages, kinds, options);
  log.info("checked    {} messages of {} on every rank", kinds.size() * sizes.size(),
           name_of(options.type));
  report_speeds(session, device, options.type, log);
  if (kinds.empty()) {
    log.info("one rank on every axis: nothing to send");
    return 0;
  }
  const std::vector<std::string> hosts = world.gather_all(session.host());
  const int64_t large = round_up(std::max<int64_t>(options.most, 8), 8);
  for (const std::string& line : link_lines(measure_links(grid, device, large), hosts, true))
    log.info("{}", line);
  Anchor copy = Anchor::copy(device);
  log.info(
      "anchor     {} on every rank at once (bytes read and written); slowest rank, turn by "
      "turn, medians of {} turns",
      copy.name(), kTurns);
  log.info("{:8} {:15} {:>5} {:>12} {:>12} {:>10} {:>10} {:>10} {:>11}", "axis", "operation",
           "ranks", "bytes", "us", "alg GB/s", "bus GB/s", "copy GB/s", "bus/copy");
  for (const MessageKind& kind : kinds)
    for (const int64_t bytes : sizes) time_message(world, messages, kind, bytes, copy, log);
  return 0;
}

}  // namespace trireme::app
