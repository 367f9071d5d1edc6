// Private to the model: activations over tp, between the split and the whole form, with the
// products that need them.
//
// Under ChunkOptions::tp_overlap the rows travel in shards of one rank each, from peer to peer and
// beside the products, step by step: behind its own shard a rank multiplies those of the next ranks
// in turn, or makes the parts of the next ranks' sums before that of its own. Whatever a call put
// on the tp stream is behind the compute stream when it returns, except between a `start` and its
// `finish`: so memory can be used again at once, and the traffic of a group has one order on all
// ranks.
#pragma once

#include <functional>

#include "model/scratch.hpp"

namespace trireme {

// Runs traffic over tp on the compute stream, whose time is exposed.
template <class Traffic>
void exposed(LayerContext& c, const Traffic& traffic) {
  if (c.tp.size() == 1) return traffic(c.device.compute());
  c.tp_exposed.start(c.device.compute());
  traffic(c.device.compute());
  c.tp_exposed.stop(c.device.compute());
}

class TensorParallel {
 public:
  // Multiplies x [m, h], the rows from `first` on of all tokens.
  using InputProduct = std::function<void(const TensorView& x, int64_t first)>;
  // Writes the product of the rows from `first` on to out [m, h].
  using OutputProduct = std::function<void(int64_t first, const TensorView& out)>;
  // What gather_product leaves in scratch: nothing that can be used, or the rows of all ranks.
  enum class Leave : uint8_t { nothing, rows };

  TensorParallel() = default;
  TensorParallel(const ChunkOptions& options, const LocalSizes& sizes);
  bool splits_rows() const { return splits_rows_; }
  int64_t row_offset() const { return row_offset_; }

  // Rows of all tp ranks: `x` itself, or gathered into scratch under sequence parallelism.
  TensorView gather(LayerContext& c, TensorView x, Scratch& v) const;
  // Gathers x and multiplies it, at once or shard by shard. Returns the rows of all ranks, where
  // they are left. Uses scratch.gathered.
  TensorView gather_product(LayerContext& c, TensorView x, Scratch& v, Leave leave,
                            const InputProduct& product) const;
  // Where a product that must be summed over tp is written, given where its sum goes.
  TensorView partial(TensorView sum, Scratch& v) const;
  void reduce(LayerContext& c, TensorView sum, Scratch& v) const;
  // Multiplies and sums over tp, at once or shard by shard; there the sum is in f32, in the order
  // of the ranks, rounded once. Uses scratch.partial and scratch.gathered.
  void product_reduce(LayerContext& c, TensorView sum, Scratch& v,
                      const OutputProduct& product) const;

  // The same as gather and reduce beside the compute stream, which waits at `finish`. A gather runs
  // at once without overlap.
  TensorView start_gather(LayerContext& c, TensorView x, Scratch& v) const;
  void finish_gather(LayerContext& c) const;
  void start_reduce(LayerContext& c, TensorView sum, Scratch& v) const;
  void finish_reduce(LayerContext& c) const;

 private:
  void issue(const LayerContext& c, Stream& stream, TensorView sum, Scratch& v) const;
  TensorView shard(TensorView whole, int rank) const;
  void start_shards(LayerContext& c, TensorView x, Scratch& v) const;

  bool splits_rows_ = false, overlaps_ = false;
  int64_t rows_ = 0, row_offset_ = 0;
};

}  // namespace trireme
