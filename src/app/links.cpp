// Neighbours of an axis exchange in two rounds (even links, then odd ones): see the header.
#include "app/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>

#include "app/bench_timing.hpp"

namespace trireme::app {
namespace {

constexpr size_t kMostLines = 64;

// Times exchanges of one message with one peer; the two ends agree on nothing but the count.
class LinkTimer {
 public:
  LinkTimer(const Communicator& axis, Device& device, int64_t bytes)
      : axis_(axis),
        stream_(device.communication()),
        memory_(static_cast<size_t>(2 * bytes), Memory::device),
        bytes_(bytes) {
    fill_zero(stream_, {memory_.data(), {2 * bytes / 4}, DType::f32});
    stream_.synchronize();
  }
  // Median of some batches of `calls` exchanges, seconds a call; both directions at once.
  double seconds(int peer, int64_t bytes, int calls) {
    const int64_t n = bytes / 4;
    const TensorView sent{memory_.data(), {n}, DType::f32};
    const TensorView got{memory_.data() + bytes_, {n}, DType::f32};
    using enum Transfer::Direction;
    const std::array<Transfer, 2> both{{{send, peer, sent}, {receive, peer, got}}};
    std::vector<double> batches;
    for (int batch = 0; batch < 6; ++batch) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) axis_.exchange(stream_, both);
      stream_.synchronize();
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      if (batch > 0) batches.push_back(passed.count() / calls);  // the first one connects
    }
    return median(batches);
  }

 private:
  const Communicator& axis_;
  Stream& stream_;
  Buffer memory_;
  int64_t bytes_;
};

void measure_axis(const ProcessGrid& grid, const Communicator& axis, const std::string& name,
                  LinkTimer& timer, int64_t bytes, std::string& lines) {
  const int me = axis.rank();
  for (int parity = 0; parity < std::min(2, axis.size() - 1); ++parity) {
    grid.world().barrier();
    const bool lower = me % 2 == parity;
    const int peer = lower ? me + 1 : me - 1;
    if (peer < 0 || peer >= axis.size()) continue;
    const double latency = timer.seconds(peer, 8, 20);
    const double whole = timer.seconds(peer, bytes, 2);
    if (!lower) continue;
    const std::vector<int>& ranks = axis.world_ranks();
    lines +=
        fmt::format("{} {} {} {:.9e} {:.9e}\n", name, ranks[static_cast<size_t>(me)],
                    ranks[static_cast<size_t>(peer)], latency, static_cast<double>(bytes) / whole);
  }
}

std::string link_line(const LinkTime& link, const std::vector<std::string>& hosts, bool slow) {
  return fmt::format("link       {} rank {} on {} - rank {} on {}: {:.1f} us, {:.4g} GB/s{}",
                     link.axis, link.from, hosts[static_cast<size_t>(link.from)], link.to,
                     hosts[static_cast<size_t>(link.to)], 1e6 * link.latency, 1e-9 * link.rate,
                     slow ? "  <- slow" : "");
}

}  // namespace

std::vector<std::string> link_lines(const std::vector<LinkTime>& links,
                                    const std::vector<std::string>& hosts, bool all) {
  std::vector<std::string> axes, lines;
  for (const LinkTime& link : links)
    if (std::ranges::find(axes, link.axis) == axes.end()) axes.push_back(link.axis);
  for (const std::string& axis : axes) {
    std::vector<double> latencies, rates;
    for (const LinkTime& link : links) {
      if (link.axis != axis) continue;
      latencies.push_back(link.latency);
      rates.push_back(link.rate);
    }
    const double typical = median(rates);
    const auto is_slow = [&](const LinkTime& link) {
      return link.axis == axis && kSlowLink * link.rate < typical;
    };
    lines.push_back(fmt::format(
        "links {:4} {}: median {:.1f} us, {:.4g} GB/s each way; slowest {:.1f} us, {:.4g} GB/s; {} "
        "slow, by {} times the median",
        axis, rates.size(), 1e6 * median(latencies), 1e-9 * typical,
        1e6 * *std::ranges::max_element(latencies), 1e-9 * *std::ranges::min_element(rates),
        std::ranges::count_if(links, is_slow), kSlowLink));
    for (const LinkTime& link : links)
      if (link.axis == axis && (is_slow(link) || (all && links.size() <= kMostLines)))
        lines.push_back(link_line(link, hosts, is_slow(link)));
  }
  return lines;
}

std::vector<LinkTime> measure_links(const ProcessGrid& grid, Device& device, int64_t bytes) {
  std::string mine;
  const std::array<std::pair<const Communicator*, const char*>, 3> axes = {
      {{&grid.tp(), "tp"}, {&grid.dp(), "dp"}, {&grid.pp(), "pp"}}};
  for (const auto& [axis, name] : axes) {
    LinkTimer timer(*axis, device, bytes);
    measure_axis(grid, *axis, name, timer, bytes, mine);
  }
  std::vector<LinkTime> links;
  for (const std::string& text : grid.world().gather_all(mine)) {
    std::istringstream words(text);
    for (LinkTime link; words >> link.axis >> link.from >> link.to >> link.latency >> link.rate;)
      links.push_back(link);
  }
  return links;
}

void report_speeds(const MpiSession& session, Device& device, DType type, const Log& log) {
  const Communicator& world = session.world();
  const int64_t n = device_memory_is_host() ? 512 : 4096;
  Anchor product = Anchor::product(device, type, n);
  std::vector<double> turns;
  for (int turn = 0; turn < kTurns; ++turn) {
    world.barrier();
    turns.push_back(product.work() / product.rate());
  }
  std::vector<double> seconds;
  std::vector<std::string> hosts;
  for (const std::string& line :
       world.gather_all(fmt::format("{:.9e} {}", median(turns), session.host()))) {
    std::istringstream words(line);
    words >> seconds.emplace_back() >> hosts.emplace_back();
  }
  const double typical = median(seconds);
  log.info("compute    {}: median {:.3f} ms, fastest {:.3f}, slowest {:.3f}", product.name(),
           1e3 * typical, 1e3 * *std::ranges::min_element(seconds),
           1e3 * *std::ranges::max_element(seconds));
  for (size_t rank = 0; rank < seconds.size(); ++rank)
    if (seconds[rank] > kSlow * typical)
      log.info("slow       rank {} on {}: {:.3f} ms, {:.2f} times the median", rank, hosts[rank],
               1e3 * seconds[rank], seconds[rank] / typical);
  const auto slow =
      std::ranges::count_if(seconds, [&](double value) { return value > kSlow * typical; });
  log.info("slow ranks {} of {}, by {} times the median", slow, seconds.size(), kSlow);
}

void report_links(const MpiSession& session, const ProcessGrid& grid, Device& device,
                  const Log& log) {
  report_speeds(session, device, DType::f32, log);
  const int64_t bytes = int64_t{1} << (device_memory_is_host() ? 20 : 26);
  const std::vector<LinkTime> links = measure_links(grid, device, bytes);
  const std::vector<std::string> hosts = session.world().gather_all(session.host());
  for (const std::string& line : link_lines(links, hosts, false)) log.info("{}", line);
}

}  // namespace trireme::app
