#include "model/tensor_parallel.hpp"

#include <array>

namespace trireme {
namespace {

// The tp stream goes on behind what compute has been given so far.
void follow_compute(LayerContext& c) {
  c.device.compute().record(c.tp_ready);
  c.tp_stream.wait(c.tp_ready);
}

// One step of shards around the group.
void exchange(LayerContext& c, int to, TensorView sent, int from, TensorView received) {
  const std::array transfers{Transfer{Transfer::Direction::send, to, sent},
                             Transfer{Transfer::Direction::receive, from, received}};
  c.tp.exchange(c.tp_stream, transfers);
  ++c.tp_shards;
}

}  // namespace

TensorParallel::TensorParallel(const ChunkOptions& options, const LocalSizes& sizes)
    : splits_rows_(options.sequence_parallel && options.grid.tp > 1),
      overlaps_(splits_rows_ && options.tp_overlap),
      rows_(sizes.rows),
      row_offset_(splits_rows_ ? options.here.tp * sizes.rows : 0) {}

TensorView TensorParallel::shard(TensorView whole, int rank) const {
  return whole.rows(rank * rows_, (rank + 1) * rows_);
}

TensorView TensorParallel::gather(LayerContext& c, TensorView x, Scratch& v) const {
  if (!splits_rows_) return x;
  exposed(c, [&](Stream& compute) { c.tp.all_gather(compute, x, v.gathered); });
  return v.gathered;
}

// Every shard has its place and its event, so that all messages can be on their way at once.
void TensorParallel::start_shards(LayerContext& c, TensorView x, Scratch& v) const {
  const int n = c.tp.size(), rank = c.tp.rank();
  c.tp_steps.resize(static_cast<size_t>(n));
  follow_compute(c);
  for (int step = 1; step < n; ++step) {
    const int from = (rank + step) % n;
    exchange(c, (rank + n - step) % n, x, from, shard(v.gathered, from));
    c.tp_stream.record(c.tp_steps[static_cast<size_t>(from)]);
  }
}

TensorView TensorParallel::gather_product(LayerContext& c, TensorView x, Scratch& v, Leave leave,
                                          const InputProduct& product) const {
  if (!overlaps_) {
    const TensorView all = gather(c, x, v);
    product(all, 0);
    return all;
  }
  const int n = c.tp.size(), rank = c.tp.rank();
  start_shards(c, x, v);
  if (leave == Leave::rows) copy(c.device.compute(), x, shard(v.gathered, rank));
  product(x, row_offset_);
  for (int step = 1; step < n; ++step) {
    const int from = (rank + step) % n;
    c.tp.progress();
    c.tp_exposed.wait(c.device.compute(), c.tp_steps[static_cast<size_t>(from)]);
    product(shard(v.gathered, from), from * rows_);
  }
  return v.gathered;
}

TensorView TensorParallel::partial(TensorView sum, Scratch& v) const {
  return splits_rows_ ? v.partial : sum;
}

void TensorParallel::issue(const LayerContext& c, Stream& stream, TensorView sum,
                           Scratch& v) const {
  if (splits_rows_) {
    c.tp.reduce_scatter(stream, v.partial, sum);
  } else {
    c.tp.all_reduce(stream, sum);
  }
}

void TensorParallel::reduce(LayerContext& c, TensorView sum, Scratch& v) const {
  if (c.tp.size() > 1) exposed(c, [&](Stream& compute) { issue(c, compute, sum, v); });
}

void TensorParallel::product_reduce(LayerContext& c, TensorView sum, Scratch& v,
                                    const OutputProduct& product) const {
  if (!overlaps_) {
    product(0, partial(sum, v));
    return reduce(c, sum, v);
  }
  const int n = c.tp.size(), rank = c.tp.rank();
  for (int step = 1; step < n; ++step) {
    const int to = (rank + step) % n, from = (rank + n - step) % n;
    product(to * rows_, shard(v.partial, to));
    follow_compute(c);
    exchange(c, to, shard(v.partial, to), from, shard(v.gathered, from));
    c.tp.progress();
  }
  c.tp_stream.record(c.tp_done);
  product(row_offset_, shard(v.gathered, rank));
  c.tp_exposed.wait(c.device.compute(), c.tp_done);
  sum_parts(c.device.compute(), v.gathered, sum);
}

TensorView TensorParallel::start_gather(LayerContext& c, TensorView x, Scratch& v) const {
  if (!overlaps_) return gather(c, x, v);
  c.tp_steps.resize(static_cast<size_t>(c.tp.size()));
  follow_compute(c);
  c.tp.all_gather(c.tp_stream, x, v.gathered);
  c.tp_stream.record(c.tp_steps.front());
  return v.gathered;
}

void TensorParallel::finish_gather(LayerContext& c) const {
  if (overlaps_) c.tp_exposed.wait(c.device.compute(), c.tp_steps.front());
}

void TensorParallel::start_reduce(LayerContext& c, TensorView sum, Scratch& v) const {
  if (c.tp.size() == 1) return;
  follow_compute(c);
  issue(c, c.tp_stream, sum, v);
  c.tp_stream.record(c.tp_done);
}

void TensorParallel::finish_reduce(LayerContext& c) const {
  if (c.tp.size() > 1) c.tp_exposed.wait(c.device.compute(), c.tp_done);
}

}  // namespace trireme
