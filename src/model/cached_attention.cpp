// Attention of a layer that generates: new keys and values go to the cache first, queries then see
// the cache alone.
#include "model/block.hpp"

namespace trireme {

void Block::attend_cached(LayerContext& c, const MicroBatch& batch, const HeadViews& h,
                          LayerStash& s) const {
  Stream& stream = c.device.compute();
  const LayerCache& cache = *s.cache;
  const Matrix memory = cache.memory;
  const int64_t kv = sizes_.kv_width();
  const Matrix keys = memory.columns(0, kv), values = memory.columns(kv, 2 * kv);
  scatter_rows(stream, {.from = h.k, .rows = cache.rows, .to = keys});
  scatter_rows(stream, {.from = h.v, .rows = cache.rows, .to = values});
  AttentionShape shape = attention_shape(c, batch);
  if (cache.first < 0) {
    attention_decode(stream, {.heads = shape.heads,
                              .kv_heads = shape.kv_heads,
                              .head_size = shape.head_size,
                              .capacity = cache.capacity,
                              .scale = shape.scale,
                              .q = h.q,
                              .k = keys,
                              .v = values,
                              .output = s.attention,
                              .rows = cache.rows});
    return;
  }
  shape.batch = 1;
  shape.query_length = h.q.rows;
  shape.query_offset = cache.first;
  shape.key_length = cache.first + h.q.rows;
  const int64_t start = cache.sequence * cache.capacity;
  const Matrix seen = cache.memory.rows(start, start + shape.key_length);
  attention_forward(stream, {.shape = shape,
                             .q = h.q,
                             .k = seen.columns(0, kv),
                             .v = seen.columns(kv, 2 * kv),
                             .output = s.attention,
                             .log_sum_exp = s.log_sum_exp});
}

}  // namespace trireme
