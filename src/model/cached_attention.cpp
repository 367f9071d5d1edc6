// Attention of a layer that generates: new keys and values go to the cache first, queries then see
// the cache alone.
#include "model/block.hpp"

namespace trireme {

void Block::attend_cached(LayerContext& c, const MicroBatch& batch, LayerStash& s) const {
  Stream& stream = c.device.compute();
  const LayerCache& cache = *s.cache;
  const Matrix qkv = s.qkv, memory = cache.memory;
  const int64_t q = sizes_.query_width(), kv = sizes_.kv_width();
  scatter_rows(stream,
               {.from = qkv.columns(q, q + 2 * kv), .rows = cache.rows, .to = cache.memory});
  AttentionShape shape = attention_shape(c, batch);
  if (cache.first < 0) {
    attention_decode(stream, {.heads = shape.heads,
                              .kv_heads = shape.kv_heads,
                              .head_size = shape.head_size,
                              .capacity = cache.capacity,
                              .scale = shape.scale,
                              .q = qkv.columns(0, q),
                              .k = memory.columns(0, kv),
                              .v = memory.columns(kv, 2 * kv),
                              .output = s.attention,
                              .rows = cache.rows});
    return;
  }
  shape.batch = 1;
  shape.query_length = qkv.rows;
  shape.query_offset = cache.first;
  shape.key_length = cache.first + qkv.rows;
  const int64_t start = cache.sequence * cache.capacity;
  const Matrix seen = cache.memory.rows(start, start + shape.key_length);
  attention_forward(stream, {.shape = shape,
                             .q = qkv.columns(0, q),
                             .k = seen.columns(0, kv),
                             .v = seen.columns(kv, 2 * kv),
                             .output = s.attention,
                             .log_sum_exp = s.log_sum_exp});
}

}  // namespace trireme
