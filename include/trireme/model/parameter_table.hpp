// The one table of parameters: what exists, how it is split, who sums its gradient, who saves it.
//
// The table is a pure function of (model, grid, coordinate): it can be built for any rank without
// MPI, so the planner and the tests use the same walk as the run. Allocation, initialisation,
// buckets, decay, norms and checkpoints are walks over it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/tensor.hpp"
#include "trireme/comm/grid_shape.hpp"
#include "trireme/model/model_shape.hpp"

namespace trireme {

// How dimension 0 is split over tp. Every split is along dimension 0 of the stored tensor: weights
// of row-split linears are stored as [in, out].
enum class Split : uint8_t {
  none,   // whole on every tp rank
  even,   // extent / tp rows each
  vocab,  // ceil(extent / tp) rows each, padding at the end of the last ranks
  heads,  // KV heads: even, or one head on tp / kv_heads ranks each
};

// Over which ranks, besides dp, the gradient must be summed before it is whole.
enum class ExtraSum : uint8_t { none, tp, kv_copies, tied };

enum class InitialValue : uint8_t { zeros, ones, normal };

struct ParameterSpec {
  std::string name;
  Shape whole;  // 1 or 2 dims
  Split split = Split::none;
  int64_t split_unit = 1;  // rows that stay together (head size)
  InitialValue initial = InitialValue::zeros;
  double std = 0;
  bool decays = false;
  bool trained = true;
  ExtraSum extra_sum = ExtraSum::none;
  bool counts = true;   // this rank's copy counts for the norm and is saved by dp rank 0
  int64_t layer = 0;    // bucket order; embedding -1, head `layers`
  bool packed = false;  // directly behind the parameter declared before, with no gap
};

// One parameter as this rank holds it.
struct ParameterEntry {
  ParameterSpec spec;
  Shape local;            // as allocated, padding rows included
  int64_t first_row = 0;  // in the whole tensor
  int64_t rows = 0;       // real rows held here (local[0] minus padding)
  int group = 0;
  int64_t offset = 0;  // in elements, in the group's flat buffers
  int64_t elements() const { return local.elements(); }
  int64_t real_elements() const { return rows * local.row_elements(); }
};

// A contiguous range of a group's flat buffer: the parameters of neighbouring layers. Length is a
// multiple of dp * kShardAlignment elements, so that ZeRO shards are equal ranges.
struct Bucket {
  int64_t first = 0, count = 0;
  int64_t first_layer = 0, last_layer = 0;  // inclusive
  int64_t end() const { return first + count; }
};

// Parameters with the same extra sum share flat value and gradient buffers, laid out in the order
// in which the backward pass finishes them (last layer first), cut into buckets.
struct ParameterGroup {
  ExtraSum extra_sum = ExtraSum::none;
  int64_t count = 0;  // elements, padding included
  std::vector<Bucket> buckets;
};

struct TableOptions {
  GridShape grid;
  GridCoord here;
  int virtual_stages = 1;
  bool sequence_parallel = false;
  int64_t bucket_elements = int64_t{16} << 20;  // a bucket closes when it has at least this many
};

// Rows of a vocabulary table that each tp rank allocates; large tables are padded for matrix units.
int64_t vocab_rows(int64_t vocab, int tp);

class ParameterTable {
 public:
  static constexpr int64_t kShardAlignment = 64;  // elements

  // Declares all parameters of the rank at `options.here`. Throws Error(bad_config), naming the
  // sizes, when tp does not divide heads, KV heads (or the reverse), ffn.
  ParameterTable(const ModelShape& model, const TableOptions& options);

  const std::vector<ParameterEntry>& entries() const { return entries_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  // Index into entries; throws Error(internal) for an unknown name.
  int find(const std::string& name) const;
  bool contains(const std::string& name) const;
  int64_t elements() const;  // allocated, over all groups
  // Initial value of the real elements of an entry, f32, in rows order; padding is zero.
  void initial_values(const ParameterEntry& entry, uint64_t seed, std::span<float> out) const;

 private:
  void declare(ParameterSpec spec);
  void lay_out();
  ModelShape model_;
  TableOptions options_;
  std::vector<ParameterEntry> entries_;
  std::vector<ParameterGroup> groups_;
};

// A range [first, first + count) of an entry's flat local elements as at most three rectangles of
// the whole tensor: the rest of a row, whole rows, the start of a row. `local` views start at
// `data` (which holds element `first`). Padding rows are left out.
std::vector<GlobalSlice> slices_of(const ParameterEntry& entry, int64_t first, int64_t count,
                                   std::byte* data, DType dtype, const std::string& name);

}  // namespace trireme
