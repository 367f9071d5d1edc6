// Each link between neighbours of a grid axis, and each rank's own speed: what names the one slow
// cable, switch or device of a job.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/comm/process_grid.hpp"

namespace trireme::app {

inline constexpr double kSlow = 1.2;      // a rank's time, times the median
inline constexpr double kSlowLink = 1.5;  // a link's time for a large message, times the median

struct LinkTime {
  std::string axis;
  int from = 0, to = 0;  // ranks of the world
  double latency = 0;    // seconds of an 8-byte message each way at once
  double rate = 0;       // bytes/s of a large message, one direction while the other is busy, too
};
// Lines of a report, links by axis: median and extremes, then every link (`all`) or the slow ones.
// Pure. `hosts` is by rank.
std::vector<std::string> link_lines(const std::vector<LinkTime>& links,
                                    const std::vector<std::string>& hosts, bool all);

// Collective; every other link of an axis is busy at the same time, as in training. The same on all
// ranks.
std::vector<LinkTime> measure_links(const ProcessGrid& grid, Device& device, int64_t bytes);

// Every rank's time for the same product, all at once; slow ranks are named. Collective.
void report_speeds(const MpiSession& session, Device& device, DType type, const Log& log);

// The short check at the start of a run: speeds, and links that are slow. Collective.
void report_links(const MpiSession& session, const ProcessGrid& grid, Device& device,
                  const Log& log);

}  // namespace trireme::app
