// The rules of the process grid, and the layouts that obey them.
#include <algorithm>
#include <cmath>

#include "config/rules.hpp"
#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

// Rules of tp and pp, whatever the number of ranks is.
void split_rules(const Settings& s, Rules& rules) {
  const GridSettings& g = s.grid;
  const ModelSettings& m = s.model;
  rules.check(g.cp == 1, {"grid.cp"},
              "grid.cp {}: context parallelism is not there yet; use grid.cp = 1 and grid.tp with "
              "grid.sequence_parallel for long sequences",
              g.cp);
  rules.check(divides(g.tp, m.heads), {"grid.tp", "model.heads"},
              "grid.tp {} does not divide model.heads {}", g.tp, m.heads);
  rules.check(m.kv_heads == m.heads || divides(g.tp, m.kv_heads) || divides(m.kv_heads, g.tp),
              {"grid.tp", "model.kv_heads"},
              "grid.tp {} and model.kv_heads {}: one must divide the other", g.tp, m.kv_heads);
  rules.check(divides(g.tp, m.ffn), {"grid.tp", "model.ffn"},
              "grid.tp {} does not divide model.ffn {}", g.tp, m.ffn);
  rules.check((g.tp - 1) * ceil_div(m.vocab, g.tp) < m.vocab, {"grid.tp", "model.vocab"},
              "model.vocab {} over grid.tp {} leaves a rank without a row; lower grid.tp", m.vocab,
              g.tp);
  const int64_t tokens = s.batch.micro * s.batch.sequence;
  rules.check(
      !g.sequence_parallel || divides(g.tp, tokens),
      {"grid.sequence_parallel", "grid.tp", "batch.micro", "batch.sequence"},
      "grid.sequence_parallel: batch.micro {} x batch.sequence {} = {} tokens is not a multiple of "
      "grid.tp {}",
      s.batch.micro, s.batch.sequence, tokens, g.tp);
  rules.check(g.virtual_stages == 1 || g.pp > 1, {"grid.virtual_stages", "grid.pp"},
              "grid.virtual_stages {} needs grid.pp above 1: there is no pipeline to interleave",
              g.virtual_stages);
  rules.check(g.virtual_stages * g.pp <= m.layers,
              {"grid.pp", "grid.virtual_stages", "model.layers"},
              "grid.pp {} x grid.virtual_stages {} = {} stages is more than model.layers {}", g.pp,
              g.virtual_stages, g.virtual_stages * g.pp, m.layers);
}

// The global batch and the sizes of its ramp over dp; dp 0 is not known yet.
void share_rules(const Settings& s, int64_t dp, Rules& rules) {
  const BatchSettings& b = s.batch;
  const int64_t share = b.micro * std::max<int64_t>(dp, 1);
  const std::string over = dp > 0 ? fmt::format(" x dp {} = {}", dp, share) : "";
  const auto whole = [&](const char* key, int64_t size) {
    rules.check(size % share == 0, {key, "batch.micro"},
                "{} {} is not a multiple of batch.micro {}{}", key, size, b.micro, over);
  };
  whole("batch.global", b.global);
  if (b.ramp_start == 0) return;
  whole("batch.ramp_start", b.ramp_start);
  whole("batch.ramp_increment", b.ramp_increment);
}

// tp x cp x pp x dp = ranks.
void equation_rule(const Settings& s, int ranks, Rules& rules) {
  const GridSettings& g = s.grid;
  const int64_t product = g.tp * g.cp * g.pp;
  const std::vector<std::string> keys = {"grid.tp", "grid.cp", "grid.pp", "grid.dp"};
  if (g.dp > 0) {
    rules.check(product * g.dp == ranks, keys,
                "grid.tp {} x cp {} x pp {} x dp {} = {} is not the number of ranks, {}", g.tp,
                g.cp, g.pp, g.dp, product * g.dp, ranks);
  } else {
    rules.check(ranks % product == 0, keys,
                "grid.tp {} x cp {} x pp {} = {} does not divide the number of ranks, {}", g.tp,
                g.cp, g.pp, product, ranks);
  }
}

Rules rules_of_grid(const Settings& s, int ranks) {
  const GridSettings& g = s.grid;
  const int64_t product = g.tp * g.cp * g.pp;
  Rules rules;
  split_rules(s, rules);
  share_rules(s, g.dp > 0 ? g.dp : ranks % product == 0 ? ranks / product : 0, rules);
  if (ranks > 0) equation_rule(s, ranks, rules);
  return rules;
}

// How far two grids are apart: doublings of each axis.
double distance(const GridShape& a, const GridShape& b) {
  const auto apart = [](int x, int y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return apart(a.tp, b.tp) + apart(a.pp, b.pp) + 0.5 * apart(a.dp, b.dp);
}

std::vector<int> divisors(int n) {
  std::vector<int> result;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) result.push_back(d);
  return result;
}

std::string proposals(const Settings& s, int ranks) {
  const std::vector<GridShape> fitting = fitting_grids(s, ranks);
  if (fitting.empty())
    return fmt::format("no layout of {} ranks fits these sizes; try another number of ranks",
                       ranks);
  std::string text = fmt::format("nearest layouts of {} ranks that fit: ", ranks);
  for (size_t i = 0; i < std::min<size_t>(fitting.size(), 3); ++i)
    text += (i > 0 ? "; " : "") + fitting[i].text();
  return text;
}

}  // namespace

void layout_rules(const Settings& settings, int ranks, Rules& rules) {
  std::vector<BrokenRule> broken = rules_of_grid(settings, ranks).broken();
  if (ranks > 0 && !broken.empty()) broken.back().text += "; " + proposals(settings, ranks);
  rules.append(std::move(broken));
}

std::vector<GridShape> fitting_grids(const Settings& settings, int ranks) {
  const GridSettings& g = settings.grid;
  const GridShape asked{.tp = static_cast<int>(g.tp),
                        .cp = 1,
                        .dp = static_cast<int>(std::max<int64_t>(1, g.dp)),
                        .pp = static_cast<int>(g.pp)};
  std::vector<GridShape> result;
  for (const int tp : divisors(ranks)) {
    for (const int pp : divisors(ranks / tp)) {
      const GridShape shape{.tp = tp, .cp = 1, .dp = ranks / tp / pp, .pp = pp};
      Settings candidate = settings;
      candidate.grid.tp = tp;
      candidate.grid.cp = 1;
      candidate.grid.pp = pp;
      candidate.grid.dp = shape.dp;
      if (!rules_of_grid(candidate, ranks).any()) result.push_back(shape);
    }
  }
  std::stable_sort(result.begin(), result.end(), [&](const GridShape& a, const GridShape& b) {
    return distance(a, asked) < distance(b, asked);
  });
  return result;
}

}  // namespace trireme
