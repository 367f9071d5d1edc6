// What lies between the projection to q, k and v and attention: norms over each head, rotation.
#include "model/block.hpp"

namespace trireme {
namespace {

// The dense matrices q and k at the start of `memory`, as rows of one head each.
struct HeadRows {
  TensorView q, k;
};

HeadRows head_rows(const LocalSizes& s, const TensorView& memory, int64_t tokens) {
  const int64_t q = tokens * s.query_width(), k = tokens * s.kv_width();
  const TensorView flat = memory.as({memory.elements()});
  return {flat.range(0, q).as({tokens * s.heads, s.head_size}),
          flat.range(q, q + k).as({tokens * s.kv_heads, s.head_size})};
}

}  // namespace

HeadViews head_views(const LocalSizes& s, TensorView qkv) {
  const int64_t q = s.query_width(), kv = s.kv_width();
  const Matrix m = qkv;
  if (!s.qk_norm) return {m.columns(0, q), m.columns(q, q + kv), m.columns(q + kv, q + 2 * kv)};
  const TensorView flat = qkv.as({qkv.elements()});
  const int64_t n = m.rows;
  return {flat.range(0, n * q).as({n, q}), flat.range(n * q, n * (q + kv)).as({n, kv}),
          flat.range(n * (q + kv), n * (q + 2 * kv)).as({n, kv})};
}

HeadViews Block::heads(const LayerStash& s, const Scratch& v) const {
  HeadViews h = head_views(sizes_, s.qkv);
  if (!sizes_.qk_norm) return h;
  const HeadRows rows = head_rows(sizes_, s.heads.empty() ? v.heads : s.heads, h.q.rows);
  h.q = rows.q.as({h.q.rows, h.q.cols});
  h.k = rows.k.as({h.k.rows, h.k.cols});
  return h;
}

void Block::make_heads(LayerContext& c, const MicroBatch& batch, const LayerStash& s,
                       const Scratch& v) const {
  Stream& stream = c.device.compute();
  if (sizes_.qk_norm) {
    const int64_t tokens = s.qkv.shape[0];
    const HeadRows raw = head_rows(sizes_, s.qkv, tokens);
    const HeadRows to = head_rows(sizes_, s.heads.empty() ? v.heads : s.heads, tokens);
    query_norm_.forward(stream, {}, raw.q, to.q);
    key_norm_.forward(stream, {}, raw.k, to.k);
  }
  rotate(c, batch, heads(s, v), v, false);
}

void Block::heads_backward(LayerContext& c, const MicroBatch& batch, const LayerStash& s,
                           const Scratch& v) const {
  Stream& stream = c.device.compute();
  rotate(c, batch, head_views(sizes_, v.d_qkv), v, true);
  if (!sizes_.qk_norm) return;
  const int64_t tokens = s.qkv.shape[0];
  const TensorView memory = s.heads.empty() ? v.heads : s.heads;
  const HeadRows raw = head_rows(sizes_, s.qkv, tokens);
  const HeadRows d = head_rows(sizes_, v.d_qkv, tokens);
  const HeadRows d_raw = head_rows(sizes_, memory, tokens);
  fill_zero(stream, memory);
  query_norm_.backward(stream, raw.q, d.q, d_raw.q);
  key_norm_.backward(stream, raw.k, d.k, d_raw.k);
  cast(stream, d_raw.q, d.q);
  cast(stream, d_raw.k, d.k);
}

void Block::rotate(LayerContext& c, const MicroBatch& batch, const HeadViews& h, const Scratch& v,
                   bool inverse) const {
  if (!rotary_) return;
  Rope call{.x = h.q,
            .heads = sizes_.heads,
            .head_size = sizes_.head_size,
            .positions = batch.positions,
            .frequencies = v.rope_frequencies,
            .inverse = inverse};
  if (!sizes_.qk_norm) {  // k lies beside q
    call.x.cols += h.k.cols;
    call.heads += sizes_.kv_heads;
    rope(c.device.compute(), call);
    return;
  }
  rope(c.device.compute(), call);
  call.x = h.k;
  call.heads = sizes_.kv_heads;
  rope(c.device.compute(), call);
}

}  // namespace trireme
