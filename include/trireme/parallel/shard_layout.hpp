// Which elements of the flat parameter buffers this rank owns on the dp x cp axis: whose gradients
// it reduces, whose optimizer state it holds, updates and saves. Pure: a function of the table, the
// place on the axis and the ZeRO stage.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/model/parameter_table.hpp"

namespace trireme {

// The owned part of one bucket. Ranges are in elements.
struct BucketShard {
  int group = 0;
  Bucket bucket;            // in the group's flat buffers
  int64_t first = 0;        // of the owned range, in the group's flat buffers
  int64_t count = 0;        // bucket.count / ranks with ZeRO-1, else bucket.count
  int64_t state_first = 0;  // of the owned range, in the state buffers
  ExtraSum extra_sum = ExtraSum::none;
  std::vector<int64_t> layers;  // that have parameters in the bucket, ascending
};

// A part of one parameter that lies in an owned range; real elements only, never padding.
struct OwnedPiece {
  int entry = 0;      // in ParameterTable::entries()
  int shard = 0;      // in ShardLayout::shards()
  int64_t first = 0;  // in the entry's local elements
  int64_t count = 0;
  int64_t state_first = 0;  // in the state buffers
};

class ShardLayout {
 public:
  // `rank` of `ranks` on the dp x cp axis; `zero` 0 (every rank owns everything) or 1 (an equal
  // share of each bucket). Throws Error(internal) where a bucket cannot be cut into equal shares.
  ShardLayout(const ParameterTable& table, int rank, int ranks, int zero);

  const ParameterTable& table() const { return *table_; }
  // Group after group, buckets in table order (the order in which the backward pass finishes them).
  const std::vector<BucketShard>& shards() const { return shards_; }
  // In the order of shards.
  const std::vector<OwnedPiece>& pieces() const { return pieces_; }
  // Elements of one state buffer: all owned ranges behind one another, padding included.
  int64_t state_elements() const { return state_elements_; }
  bool sharded() const { return zero_ == 1 && ranks_ > 1; }
  // Whether this rank speaks for a piece: each element of the model has exactly one speaker in the
  // world. It counts the piece for the norm and saves it.
  bool speaks_for(const OwnedPiece& piece) const;
  // Bytes that this rank saves: values of type `value`, f32 master weights and two moments.
  int64_t saved_bytes(DType value) const;

 private:
  const ParameterTable* table_;
  int rank_, ranks_, zero_;
  std::vector<BucketShard> shards_;
  std::vector<OwnedPiece> pieces_;
  int64_t state_elements_ = 0;
};

}  // namespace trireme
