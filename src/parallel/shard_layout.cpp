#include "trireme/parallel/shard_layout.hpp"

#include <algorithm>
#include <set>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::vector<int64_t> layers_of(const ParameterTable& table, int group, const Bucket& bucket) {
  std::set<int64_t> layers;
  for (const ParameterEntry& entry : table.entries())
    if (entry.group == group && entry.offset >= bucket.first && entry.offset < bucket.end())
      layers.insert(entry.spec.layer);
  return {layers.begin(), layers.end()};
}

}  // namespace

ShardLayout::ShardLayout(const ParameterTable& table, int rank, int ranks, int zero)
    : table_(&table), rank_(rank), ranks_(ranks), zero_(zero) {
  require(zero == 0 || zero == 1, ExitCode::bad_config,
          "optimizer.zero is {}; it must be 0 (replicated) or 1 (sharded)", zero);
  for (size_t g = 0; g < table.groups().size(); ++g) {
    const ParameterGroup& group = table.groups()[g];
    for (const Bucket& bucket : group.buckets) {
      const int shares = sharded() ? ranks : 1;
      require(bucket.count % shares == 0, ExitCode::internal,
              "a bucket of {} elements cannot be cut into {} equal shares", bucket.count, shares);
      const int64_t count = bucket.count / shares;
      const int64_t first = bucket.first + (sharded() ? count * rank : 0);
      const int index = static_cast<int>(g);
      shards_.push_back({index, bucket, first, count, state_elements_, group.extra_sum,
                         layers_of(table, index, bucket)});
      state_elements_ += count;
    }
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    const BucketShard& shard = shards_[s];
    for (size_t e = 0; e < table.entries().size(); ++e) {
      const ParameterEntry& entry = table.entries()[e];
      const int64_t first = std::max(shard.first, entry.offset);
      const int64_t last =
          std::min(shard.first + shard.count, entry.offset + entry.real_elements());
      if (entry.group != shard.group || first >= last) continue;
      pieces_.push_back({static_cast<int>(e), static_cast<int>(s), first - entry.offset,
                         last - first, shard.state_first + first - shard.first});
    }
  }
}

bool ShardLayout::speaks_for(const OwnedPiece& piece) const {
  const bool whole_copy = !sharded() && rank_ != 0;
  return !whole_copy && table_->entries()[static_cast<size_t>(piece.entry)].spec.counts;
}

int64_t ShardLayout::saved_bytes(DType value) const {
  int64_t elements = 0;
  for (const OwnedPiece& piece : pieces_)
    if (speaks_for(piece)) elements += piece.count;
  return elements * static_cast<int64_t>(size_of(value) + 3 * sizeof(float));
}

}  // namespace trireme
