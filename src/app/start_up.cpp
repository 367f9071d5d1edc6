// The checks of the first second of a job: see the header.
#include "app/start_up.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <sstream>

#include "trireme/base/random.hpp"
#include "trireme/comm/network.hpp"
#include "trireme/comm/rank_table.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/device/visible_devices.hpp"
#include "trireme/train/host_facts.hpp"
#include "trireme/train/version.hpp"

namespace trireme::app {
namespace {

const char* variable(const char* name) {
  return std::getenv(name);
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "rank 3 on node7, rank 5 on node8 and 2 more" of the ranks whose text is not that of rank 0.
std::string odd_ranks(const MpiSession& session, const std::string& mine) {
  const std::vector<std::string> all = session.world().gather_all(mine);
  const std::vector<std::string> hosts = session.world().gather_all(session.host());
  std::string text;
  int odd = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0] || ++odd > 3) continue;
    text += fmt::format("{}rank {} on {}", text.empty() ? "" : ", ", rank, hosts[rank]);
  }
  return odd > 3 ? fmt::format("{} and {} more", text, odd - 3) : text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  return text;
}

std::vector<RankPlace> places_of(const MpiSession& session, const std::string& device) {
  std::vector<RankPlace> places;
  for (const std::string& line : session.world().gather_all(
           fmt::format("{}\n{}\n{}", session.node(), session.host(), device))) {
    std::istringstream text(line);
    RankPlace place;
    std::string node;
    std::getline(text, node);
    std::getline(text, place.host);
    std::getline(text, place.device);
    place.node = std::stoi(node);
    places.push_back(std::move(place));
  }
  return places;
}

std::string device_text(const MpiSession& session, const Settings& settings,
                        const HostFacts& facts) {
  const std::vector<std::string> visible = visible_devices();
  if (visible.empty())
    return fmt::format("{} thread{}, processors {}", facts.threads, facts.threads == 1 ? "" : "s",
                       facts.processors);
  const auto index =
      static_cast<size_t>(device_options(session, settings).node_rank) % visible.size();
  return fmt::format("GPU {} of {}, {}", index, visible.size(), visible[index].substr(0, 12));
}

// What each rank sees, by rank.
std::vector<SeenDevices> seen_devices(const MpiSession& session) {
  std::vector<SeenDevices> all;
  for (const std::string& text : session.world().gather_all(
           fmt::format("{}\n{}", session.node(), joined(visible_devices())))) {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    all.push_back({std::stoi(line), {}});
    while (std::getline(lines, line)) all.back().ids.push_back(line);
  }
  return all;
}

// NCCL's interface, or where MPI moves the data the one that it was told to take.
std::string socket_pattern() {
  if (const char* text = variable("NCCL_SOCKET_IFNAME")) return text;
  const char* include = variable("OMPI_MCA_btl_tcp_if_include");
  if (include == nullptr || std::string_view(include).find('/') != std::string_view::npos)
    return "";
  return fmt::format("={}", include);
}

std::unique_ptr<Listener> listen_here(const MpiSession& session, std::string& fault) {
  const std::string pattern = socket_pattern();
  const auto address = socket_address(network_addresses(), pattern);
  try {
    if (address)
      return std::make_unique<Listener>(
          *address, fmt::format("trireme {} {:08x}", session.node(), std::random_device()()));
    fault =
        fmt::format("{}: no network interface is up that \"{}\" names", session.host(), pattern);
  } catch (const Error& error) {
    fault = fmt::format("{}: {}", session.host(), error.what());
  }
  return nullptr;
}

// Lines "n1 (eth0 10.0.0.1) does not reach n2 ..." of this host's calls to the others.
std::string unreached(const MpiSession& session, const std::vector<std::string>& endpoints,
                      const std::vector<std::string>& hosts) {
  std::vector<Endpoint> peers;
  std::vector<std::string> names;
  const auto me = static_cast<size_t>(session.world().rank());
  for (size_t i = 1; i < endpoints.size(); ++i) {  // the next host first: not all call one at once
    const size_t rank = (me + i) % endpoints.size();
    if (endpoints[rank].empty()) continue;
    peers.push_back(Endpoint::parse(endpoints[rank]));
    names.push_back(hosts[rank]);
  }
  constexpr double kSeconds = 5;
  const std::vector<std::string> faults = call_all(peers, kSeconds);
  const Endpoint mine = Endpoint::parse(endpoints[me]);
  std::string lines;
  for (size_t i = 0; i < faults.size(); ++i)
    if (!faults[i].empty())
      lines += fmt::format("{} ({} {}) does not reach {} at {}, port {} ({}): {}\n", session.host(),
                           mine.interface, mine.address, names[i], peers[i].address, peers[i].port,
                           peers[i].interface, faults[i]);
  return lines;
}

std::string first_lines(const std::vector<std::string>& texts) {
  constexpr int kMostLines = 8;
  std::string all, line;
  int count = 0;
  for (const std::string& text : texts)
    for (std::istringstream lines(text); std::getline(lines, line);)
      if (++count <= kMostLines) all += (all.empty() ? "" : "; ") + line;
  return count > kMostLines ? fmt::format("{}; and {} more", all, count - kMostLines) : all;
}

}  // namespace

LauncherWorld read_launcher() {
  LauncherWorld world = launcher_world(variable, file_text);
  const std::string fault = start_fault(world, variable, MpiSession::library_version());
  if (fault.empty()) return world;
  require(world.task == 0, ExitCode::bad_config, "task {} cannot start: see task 0", world.task);
  fail(ExitCode::bad_config, "{}", fault);
}

void require_same_program(const MpiSession& session) {
  const std::string id = version_text() + " build " + build_id();
  const std::string odd = odd_ranks(session, id);
  session.world().require_all(
      odd.empty(), ExitCode::bad_config,
      fmt::format("other builds of the program run on {}; rank 0 runs {}. Install the same file on "
                  "all hosts (in containers: the same image for launcher and workers)",
                  odd, id));
}

void require_expected_world(const MpiSession& session, LauncherWorld expected,
                            const GridSettings& grid) {
  if (grid.ranks > 0) expected.ranks = {static_cast<int>(grid.ranks), "grid.ranks"};
  if (grid.nodes > 0) expected.nodes = {static_cast<int>(grid.nodes), "grid.nodes"};
  // Only ranks on the launcher's host can read its host file: the first that knows speaks.
  const std::string fault = world_fault(expected, session.world().size(), session.nodes());
  session.world().require_all(fault.empty(), ExitCode::bad_config, fault);
}

void require_one_job(const MpiSession& session, LauncherWorld expected) {
  if (expected.ranks.from == "SLURM_NTASKS") expected.ranks = {};
  expected.nodes = {};
  require_expected_world(session, std::move(expected), {});
}

void require_same_deck(const MpiSession& session, const Settings& settings) {
  const std::string text = to_deck_text(settings);
  const std::string odd = odd_ranks(session, fmt::format("{:016x}", name_hash(text)));
  const std::string first = session.world().broadcast(text, 0);
  std::string keys;
  for (const SettingDifference& d : differences(first, text))
    keys += fmt::format("{}{}: {} there, {} on rank 0", keys.empty() ? "" : "; ", d.name, d.after,
                        d.before);
  session.world().require_all(
      text == first, ExitCode::bad_config,
      fmt::format("the deck of {} differs from that of rank 0 ({}): give all ranks the same "
                  "command line",
                  odd, keys));
}

DeviceOptions device_options(const MpiSession& session, const Settings& settings) {
  DeviceOptions options;
  options.allow_tf32 = settings.precision.compute == PrecisionSettings::Compute::tf32;
  options.node_rank = options.node_ranks = 0;
  options.ranks = session.world().size();
  const std::vector<std::string> visible = visible_devices();
  const std::string mine = fmt::format("{}\n{}", session.node(), joined(visible));
  const std::vector<std::string> all = session.world().gather_all(mine);
  for (int rank = 0; rank < session.world().size(); ++rank) {
    if (all[static_cast<size_t>(rank)] != mine) continue;
    options.node_ranks += 1;
    if (rank < session.world().rank()) options.node_rank += 1;
  }
  const std::string fault = visibility_fault(static_cast<int>(visible.size()), options.node_ranks,
                                             settings.grid.share_devices);
  session.world().require_all(fault.empty(), ExitCode::bad_config, fault);
  return options;
}

void report_places(const MpiSession& session, const GridShape& shape, const Settings& settings,
                   const Log& log) {
  const HostFacts facts = host_facts(omp_get_max_threads());
  const std::vector<RankPlace> places = places_of(session, device_text(session, settings, facts));
  const std::string split = tp_split_fault(shape, places);
  session.world().require_all(split.empty() || settings.grid.tp_across_nodes, ExitCode::bad_config,
                              split);
  for (const std::string& line : rank_table(shape, places)) log.info("{}", line);
  if (!split.empty()) log.warning("grid.tp_across_nodes is on, and tp leaves its host: slow");
  std::vector<PlacedFacts> all;
  for (const std::string& text : session.world().gather_all(facts.text()))
    all.push_back({places[all.size()].node, places[all.size()].host, HostFacts::parse(text)});
  for (const auto& [name, value] : all[0].facts.variables) log.info("variable: {}={}", name, value);
  for (const std::string& line : host_warnings(all, !device_memory_is_host()))
    log.warning("{}", line);
  const std::string hidden = hidden_devices(seen_devices(session));
  if (!hidden.empty()) log.warning("{}", hidden);
}

void check_network(const MpiSession& session, const Settings& settings, const Log& log) {
  if (session.nodes() == 1 || !settings.fault.check_network) return;
  std::string fault;
  std::unique_ptr<Listener> listener;
  if (session.node_rank() == 0) listener = listen_here(session, fault);
  const auto endpoints = session.world().gather_all(listener ? listener->endpoint().text() : "");
  const auto hosts = session.world().gather_all(session.host());
  if (listener) fault = unreached(session, endpoints, hosts);
  const std::string faults = first_lines(session.world().gather_all(fault));  // all calls are over
  if (faults.empty()) {
    if (log.rank() == 0)
      log.info("network: {} hosts reach each other by TCP ({} here)", session.nodes(),
               listener->endpoint().interface);
    return;
  }
  const std::string text = fmt::format(
      "{}. Choose an interface that leads to all hosts, the same variable on all ranks (mpirun -x "
      "NCCL_SOCKET_IFNAME=eth0; where MPI moves the data --mca btl_tcp_if_include eth0), and let "
      "firewalls pass the ports of net.ipv4.ip_local_port_range between hosts",
      faults);
  session.world().require_all(device_memory_is_host(), ExitCode::peer, text);
  log.warning("{}", text);
}

}  // namespace trireme::app
