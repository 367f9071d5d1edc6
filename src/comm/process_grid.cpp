// Cuts the world into the groups of the grid.
//
// Every rank makes the same splits in the same order. The edges of the pipeline are made in rounds
// in which each stage has one edge at most, so that an edge never waits for another one.
#include "trireme/comm/process_grid.hpp"

#include <memory>

namespace trireme::inline TRIREME_BACKEND {

namespace {

const GridShape& checked(const GridShape& shape, const Communicator& world, int64_t kv_heads) {
  check_ranks(shape, world.size());
  require(
      kv_heads >= 1 && (shape.tp <= kv_heads || shape.tp % kv_heads == 0), ExitCode::bad_config,
      "grid.tp = {} is neither at most model.kv_heads = {} nor a multiple of it: choose tp so that "
      "each rank holds whole KV heads or one copy of one",
      shape.tp, kv_heads);
  return shape;
}

// Same stage-independent place: ranks that differ in pp only have the same number.
int column_of(const GridCoord& at, const GridShape& shape) {
  return at.tp + shape.tp * (at.cp + shape.cp * at.dp);
}

int tied_colour(const GridCoord& at, const GridShape& shape) {
  const bool holds_table = at.pp == 0 || at.pp == shape.pp - 1;
  return shape.pp > 1 && holds_table ? column_of(at, shape) : -1;
}

// tp ranks t and u hold the same KV head when t / copies == u / copies, copies = tp / kv_heads.
int kv_colour(const GridCoord& at, const GridShape& shape, int64_t kv_heads) {
  if (shape.tp <= kv_heads) return -1;
  const int copies = shape.tp / static_cast<int>(kv_heads);
  const GridCoord first{at.tp / copies * copies, at.cp, at.dp, at.pp};
  return rank_of(first, shape);
}

// Round of an edge: even, odd, and at an odd number of stages the one that closes the ring, which
// would meet edge 0 at stage 0.
int round_of(int edge, int stages) {
  return stages % 2 == 1 && edge == stages - 1 ? 2 : edge % 2;
}

}  // namespace

ProcessGrid::ProcessGrid(const Communicator& world, const GridShape& shape, int64_t kv_heads,
                         Device& device)
    : shape_(checked(shape, world, kv_heads)),
      here_(coord_of(world.rank(), shape)),
      world_(world.split(0, world.rank(), "grid")),
      tp_(world_.split(world_.rank() / shape.tp, here_.tp, "tp")),
      dp_(world_.split(here_.tp + shape.tp * here_.pp, world_.rank(), "dp")),
      pp_(world_.split(column_of(here_, shape), here_.pp, "pp")),
      tied_(world_.split(tied_colour(here_, shape), here_.pp, "tied_embedding")),
      kv_copies_(world_.split(kv_colour(here_, shape, kv_heads), here_.tp, "kv_copies")) {
  for (Communicator* group : {&world_, &dp_, &pp_, &tied_, &kv_copies_}) group->connect(device);
  tp_.connect(device, Links::pairs);
  if (shape.pp == 1) return;
  const int columns = shape.tp * shape.cp * shape.dp;
  const int previous = (here_.pp + shape.pp - 1) % shape.pp;
  const int rounds = shape.pp % 2 == 0 ? 2 : 3;
  for (int round = 0; round < rounds; ++round) {
    const bool next_here = round_of(here_.pp, shape.pp) == round;
    const bool previous_here = round_of(previous, shape.pp) == round;
    const int edge = next_here ? here_.pp : previous;
    const int colour = next_here || previous_here ? edge * columns + column_of(here_, shape) : -1;
    const int key = next_here ? 0 : 1;
    auto made = std::make_unique<PipelineEdge>(PipelineEdge{
        world_.split(colour, key, "activations"), world_.split(colour, key, "gradients")});
    if (colour < 0) continue;
    made->activations.connect(device);
    made->gradients.connect(device);
    made->activation_stream =
        &device.new_stream(next_here ? "activations to next" : "activations from previous");
    made->gradient_stream =
        &device.new_stream(next_here ? "gradients from next" : "gradients to previous");
    (next_here ? to_next_ : to_previous_) = std::move(made);
  }
}

}  // namespace trireme::inline TRIREME_BACKEND
