// trireme plan DECK --ranks N: what a run would be, without starting it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "app/commands.hpp"
#include "app/deck_arguments.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/config/reference.hpp"
#include "trireme/ops/gpu_work.hpp"
#include "trireme/train/rank_plan.hpp"

namespace trireme::app {
namespace {

constexpr const char* kUsage = "trireme plan DECK --ranks N [--section.key=value ...]";

std::string mib(double bytes) {
  return fmt::format("{:.1f}", bytes / (1 << 20));
}

void print_model(const Settings& settings, const ModelShape& model) {
  const int64_t t = settings.batch.sequence;
  fmt::print("model       {} parameters ({} in matrix products), {}\n", model.parameters(),
             model.product_parameters(), name_of(model.compute));
  fmt::print(
      "FLOPs       {} a token forward and backward, causal attention at half; {} with the "
      "full square\n",
      model.flops_per_token(t), model.flops_per_token_full(t));
  const double step = static_cast<double>(model.flops_per_token(t)) *
                      static_cast<double>(t * settings.batch.global);
  fmt::print("step        {} sequences of {} tokens, {:.4g} FLOPs\n", settings.batch.global, t,
             step);
}

// Host memory beside it, for saves that go on beside training.
void print_snapshot(const Settings& settings, const GridShape& grid) {
  std::string have;
  bool streams = false, any = false;
  for (int stage = 0; stage < grid.pp; ++stage) {
    const SnapshotPlan plan =
        snapshot_plan(settings.checkpoint, rank_plan(settings, grid, {0, 0, 0, stage}));
    have += fmt::format("{:>12}", mib(static_cast<double>(plan.bytes)));
    streams = streams || plan.bytes < plan.needed;
    any = any || plan.needed > 0;
  }
  if (!any) return;
  fmt::print("  {:18}{}   page-locked host memory, for the copy that a save writes from\n",
             "snapshot", have);
  if (streams)
    fmt::print(
        "  checkpoint.memory is less than the state of a rank: a save writes the rest "
        "while training pauses\n");
}

// On a GPU operations take memory of their own; cuDNN's most where bf16 gradients add in one order.
void print_work_memory(const Settings& settings, const RankPlan& plan) {
  const ModelShape& m = plan.model;
  const int64_t tp = plan.chunk.grid.tp;
  int64_t bytes = kGpuWorkBytes;
  if (m.compute == DType::bf16 && settings.precision.deterministic && m.dropout == 0)
    bytes += gpu_attention_bytes(plan.chunk.batch.micro, plan.chunk.batch.sequence,
                                 ceil_div(m.heads, tp), ceil_div(m.kv_heads, tp));
  fmt::print("  {:18}{:>12}   on a GPU beside it: products and attention. Context and NCCL: more\n",
             "work memory", mib(static_cast<double>(bytes)));
}

// Bytes by purpose, one column for each pipeline stage (tp and dp ranks of a stage are alike but
// for the padding of vocabularies, so the largest is shown).
void print_memory(const Settings& settings, const GridShape& grid) {
  std::vector<std::string> purposes;
  std::vector<std::map<std::string, size_t>> stages(static_cast<size_t>(grid.pp));
  for (int stage = 0; stage < grid.pp; ++stage) {
    for (const ArenaLine& line : planned_memory(rank_plan(settings, grid, {0, 0, 0, stage}))) {
      if (std::ranges::find(purposes, line.purpose) == purposes.end())
        purposes.push_back(line.purpose);
      stages[static_cast<size_t>(stage)][line.purpose] = line.bytes;
    }
  }
  fmt::print("memory      MiB on a rank of each stage\n  {:18}", "");
  for (int stage = 0; stage < grid.pp; ++stage)
    fmt::print("{:>12}", fmt::format("stage {}", stage));
  std::vector<double> totals(stages.size());
  for (const std::string& purpose : purposes) {
    fmt::print("\n  {:18}", purpose);
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto bytes = static_cast<double>(stages[s][purpose]);
      totals[s] += bytes;
      fmt::print("{:>12}", mib(bytes));
    }
  }
  fmt::print("\n  {:18}", "sum");
  for (double total : totals) fmt::print("{:>12}", mib(total));
  fmt::print("\n  {:18}", "sum in bytes");
  for (double total : totals) fmt::print(" {:>11.0f}", total);
  fmt::print("\n");
  print_work_memory(settings, rank_plan(settings, grid, {0, 0, 0, 0}));
  print_snapshot(settings, grid);
}

// Bytes that a rank sends in a step, by axis, with ring algorithms (performance formulas of
// doc/metrics.md).
void print_traffic(const GridShape& grid, const RankPlan& plan) {
  const ModelShape& m = plan.model;
  const auto element = static_cast<double>(size_of(m.compute));
  const double tokens = static_cast<double>(plan.chunk.batch.tokens());
  const double micro = plan.pipeline.micro_batches;
  const double layers = static_cast<double>(ceil_div(m.layers, grid.pp));
  const double ring = static_cast<double>(grid.tp - 1) / grid.tp;
  const double activation = tokens * static_cast<double>(m.hidden) * element;
  const double tp = (plan.chunk.sequence_parallel ? 10 : 8) * ring * activation * layers * micro;
  const double pp = grid.pp == 1 ? 0
                                 : 2 * micro * plan.pipeline.chunks * activation /
                                       (plan.chunk.sequence_parallel ? grid.tp : 1);
  Arena dry = Arena::dry();
  const RankMemory memory(plan, dry);
  const double parameters = static_cast<double>(memory.table.elements());
  const double share = static_cast<double>(grid.dp - 1) / grid.dp;
  const double dp = share * parameters * (plan.zero == 1 ? 4 + element : 8);
  fmt::print("traffic     MiB that a rank sends in a step: tp {}, pp {}, dp {}\n", mib(tp), mib(pp),
             mib(dp));
}

void print_schedule(const RankPlan& plan) {
  const std::vector<ActionList> lists = schedules_for(plan.pipeline, Pass::train);
  fmt::print("schedule    {} micro-batches, {} chunk{} a stage\n{}", plan.pipeline.micro_batches,
             plan.pipeline.chunks, plan.pipeline.chunks == 1 ? "" : "s",
             draw(lists, plan.pipeline, 118));
}

void print_proposals(const Settings& settings, int ranks) {
  const std::vector<GridShape> grids = fitting_grids(settings, ranks);
  fmt::print("layouts     that fit {} ranks, largest rank in MiB:\n", ranks);
  for (size_t i = 0; i < std::min<size_t>(grids.size(), 6); ++i) {
    double largest = 0;
    for (int stage = 0; stage < grids[i].pp; ++stage) {
      double sum = 0;
      for (const ArenaLine& line : planned_memory(rank_plan(settings, grids[i], {0, 0, 0, stage})))
        sum += static_cast<double>(line.bytes);
      largest = std::max(largest, sum);
    }
    fmt::print("  {:36} {:>12}\n", grids[i].text(), mib(largest));
  }
}

}  // namespace

int plan(std::span<const std::string> words) {
  if (words.size() == 1 && words[0] == "--print-reference") {
    fmt::print("{}", input_reference_markdown());
    return 0;
  }
  std::vector<std::string> rest;
  int ranks = 1;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string value;
    if (words[i] == "--ranks" && i + 1 < words.size())
      value = words[++i];
    else if (words[i].starts_with("--ranks="))
      value = words[i].substr(8);
    else
      rest.push_back(words[i]);
    if (value.empty()) continue;
    char* end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 10);
    require(*end == '\0' && number > 0 && number <= 1 << 24, ExitCode::usage,
            "--ranks {}: a whole number from 1 on is needed\nusage: {}", value, kUsage);
    ranks = static_cast<int>(number);
  }
  const DeckArguments arguments = deck_arguments(rest, kUsage);
  const Deck deck = read_deck(arguments.path, arguments.overrides, ranks);
  const Settings& settings = deck.settings;
  const GridShape grid = grid_shape(settings, ranks);
  const RankPlan first = rank_plan(settings, grid, {});
  fmt::print("deck        {}\ngrid        {} = {} ranks\n", deck.name, grid.text(), ranks);
  print_model(settings, first.model);
  print_memory(settings, grid);
  print_traffic(grid, first);
  print_schedule(first);
  print_proposals(settings, ranks);
  for (const std::string& note : deck.notes) fmt::print("note        {}\n", note);
  return 0;
}

}  // namespace trireme::app
