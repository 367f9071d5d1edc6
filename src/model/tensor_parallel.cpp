#include "model/block.hpp"

namespace trireme {

TensorParallel::TensorParallel(const ChunkOptions& options, const LocalSizes& sizes)
    : splits_rows_(options.sequence_parallel && options.grid.tp > 1),
      row_offset_(splits_rows_ ? options.here.tp * sizes.rows : 0) {}

TensorView TensorParallel::gather(LayerContext& c, TensorView x, Scratch& v) const {
  if (!splits_rows_) return x;
  c.tp.all_gather(c.device.compute(), x, v.gathered);
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
  if (c.tp.size() > 1) issue(c, c.device.compute(), sum, v);
}

void TensorParallel::start_reduce(LayerContext& c, TensorView sum, Scratch& v) const {
  if (c.tp.size() == 1) return;
  c.device.compute().record(c.tp_ready);
  c.tp_stream.wait(c.tp_ready);
  issue(c, c.tp_stream, sum, v);
  c.tp_stream.record(c.tp_done);
}

void TensorParallel::finish(LayerContext& c) const {
  if (c.tp.size() > 1) c.device.compute().wait(c.tp_done);
}

}  // namespace trireme
