// From settings to what the code below runs with, and the rules that tie settings together. Pure.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/grid_shape.hpp"
#include "trireme/config/batch_ramp.hpp"
#include "trireme/config/settings.hpp"
#include "trireme/model/model_shape.hpp"

namespace trireme {

struct BrokenRule {
  std::vector<std::string> keys;  // "section.key" of the values that contradict each other
  std::string text;               // the sizes and the remedy
};

// Fills in what a deck may leave to us (kv_heads, head_size, ffn, positions, schedule.decay,
// a run directory named after the deck) and switches sequence parallelism off at
// tp
// 1. Returns lines for the log. Values out of range are left alone.
std::vector<std::string> resolve(Settings& settings, const std::string& deck_name);

// Every broken rule of resolved settings; the layout rules too where `ranks` is above 0.
std::vector<BrokenRule> broken_rules(const Settings& settings, int ranks);

// Sizes for the model code, from resolved settings.
ModelShape model_shape(const Settings& settings);
// The grid on so many ranks. Throws Error(bad_config) that lists every broken layout rule.
GridShape grid_shape(const Settings& settings, int ranks);
// Layouts of so many ranks that break no rule of the grid, nearest to the asked one first.
std::vector<GridShape> fitting_grids(const Settings& settings, int ranks);

BatchRamp batch_ramp(const Settings& settings);
// The data that the settings name; no samples are asked for yet.
DataOptions data_options(const Settings& settings);
// Samples of an evaluation; kOneEpoch: all.
int64_t validation_request(const Settings& settings);
}  // namespace trireme
