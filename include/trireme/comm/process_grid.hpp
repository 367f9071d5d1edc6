// The communicators of the process grid, made by MPI_Comm_split. Built in main and passed down.
#pragma once

#include <vector>

#include "trireme/comm/communicator.hpp"
#include "trireme/comm/grid_shape.hpp"

namespace trireme::inline TRIREME_BACKEND {

// Both directions of one pipeline edge, each a group of the two stages with a stream of its own, so
// that messages of different edges or directions never wait for each other (at pp = 2 the previous
// and the next stage are the same peer). In the group the lower end of the edge is rank 0.
struct PipelineEdge {
  Communicator activations;  // from stage s to stage s+1 (mod pp)
  Communicator gradients;    // from stage s+1 back to s
  Stream* activation_stream = nullptr;
  Stream* gradient_stream = nullptr;
};

class ProcessGrid {
 public:
  // Collective over `world`. Throws Error(bad_config) when shape.ranks() is not the world's size.
  // `kv_heads`: when tp is larger, the tp ranks that hold the same KV head form a group.
  ProcessGrid(const Communicator& world, const GridShape& shape, int64_t kv_heads, Device& device);

  const GridShape& shape() const { return shape_; }
  const GridCoord& here() const { return here_; }
  bool first_stage() const { return here_.pp == 0; }
  bool last_stage() const { return here_.pp == shape_.pp - 1; }

  const Communicator& world() const { return world_; }  // all ranks of the grid
  const Communicator& tp() const { return tp_; }
  const Communicator& dp() const { return dp_; }  // dp x cp: gradients
  const Communicator& pp() const { return pp_; }
  // First and last stage of this (tp, cp, dp): sums the gradient of a tied table. One rank at pp =
  // 1 and on stages between.
  const Communicator& tied_embedding() const { return tied_; }
  // tp ranks that hold a copy of the same KV head; one rank where tp <= kv_heads.
  const Communicator& kv_copies() const { return kv_copies_; }
  const PipelineEdge& to_next() const { return *to_next_; }          // pp > 1 only
  const PipelineEdge& to_previous() const { return *to_previous_; }  // pp > 1 only

 private:
  GridShape shape_;
  GridCoord here_;
  Communicator world_, tp_, dp_, pp_, tied_, kv_copies_;
  std::unique_ptr<PipelineEdge> to_next_, to_previous_;
};

}  // namespace trireme::inline TRIREME_BACKEND
