// Which sample each rank reads: a sequential walk over the sample numbers, cut alike on every
// layout.
//
// The global batch that starts at `consumed` is the set [consumed, consumed + global), whatever the
// number of data-parallel ranks and the micro-batch size; only who reads what changes. Pure
// arithmetic. The ranks of one data-parallel rank (its tp, cp and pp ranks) see the same samples.
#pragma once

#include <cstdint>

namespace trireme {

struct BatchWalk {
  int64_t global = 1;         // sequences of a global batch
  int64_t micro = 1;          // sequences of a micro-batch on one data-parallel rank
  int64_t data_parallel = 1;  // ranks that read different samples (cp not counted)

  // Throws Error(bad_config), with the equation, unless micro * data_parallel divides global.
  void check() const;
  // Micro-batches that every data-parallel rank runs for a global batch.
  int64_t micro_batches() const { return global / (micro * data_parallel); }
  // The sample of row `row` of micro-batch `micro_batch` on data-parallel rank `rank`.
  int64_t sample(int64_t consumed, int64_t micro_batch, int64_t rank, int64_t row) const {
    return consumed + (micro_batch * data_parallel + rank) * micro + row;
  }
  // Whole global batches left in `samples` from `consumed` on; an incomplete one at the end is
  // dropped.
  int64_t batches_left(int64_t samples, int64_t consumed) const {
    return samples > consumed ? (samples - consumed) / global : 0;
  }
};

}  // namespace trireme
