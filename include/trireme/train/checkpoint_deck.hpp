// The deck of a checkpoint that is used without its run: to evaluate, to generate.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "trireme/comm/communicator.hpp"
#include "trireme/comm/grid_shape.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/io/checkpoint_file.hpp"

namespace trireme {

struct CheckpointDeck {
  std::filesystem::path file;
  CheckpointHeader header;
  Deck deck;  // overridden, resolved; the grid is one of the job's ranks
  GridShape grid;
};

// Collective. `path` is a checkpoint, a run directory or one with checkpoints (the newest step is
// taken). The deck is that of the file beside the checkpoint, else of the run directory, else what
// the checkpoint's own header says of model and data. `adjust` may change settings after the
// overrides. Where these name no grid, the deck's own is kept if it fits the number of ranks, else
// the nearest that does is taken. The same Error on all ranks: no_input (no checkpoint there),
// bad_data (a damaged one), bad_config (overrides, or no grid that fits).
CheckpointDeck open_checkpoint_deck(const Communicator& world, const std::string& path,
                                    std::span<const std::string> overrides,
                                    const std::function<void(Settings&)>& adjust);

}  // namespace trireme
