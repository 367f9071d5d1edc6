// Bench cases: causal attention with and without dropout, rotary embedding.
#include <cmath>

#include "app/bench_attention_check.hpp"
#include "app/bench_case.hpp"

namespace trireme::app {
namespace {

AttentionBackward attention_call(BenchData& d, const BenchSizes& s, float probability) {
  AttentionBackward call;
  AttentionShape& shape = call.shape;
  shape.batch = s.tokens / s.sequence;
  shape.query_length = shape.key_length = s.sequence;
  shape.heads = s.heads;
  shape.kv_heads = s.kv_heads;
  shape.head_size = s.head_size;
  shape.scale = 3 / std::sqrt(static_cast<float>(s.head_size));  // scores of about one
  shape.dropout = {.probability = probability, .site = 8 * 3, .sequence = s.sequence};
  shape.dropout.state = d.state(bench_step_state());
  const int64_t q = s.query_width(), kv = s.kv_width();
  const Matrix packed = d.random({s.tokens, q + 2 * kv}, s.type);
  call.q = packed.columns(0, q);
  call.k = packed.columns(q, q + kv);
  call.v = packed.columns(q + kv, q + 2 * kv);
  call.output = d.poisoned({s.tokens, q}, s.type);
  call.log_sum_exp = d.poisoned({shape.batch, s.heads, s.sequence}, DType::f32);
  return call;
}

// The pairs of a query and a key at or before it, as 2 FLOPs for each of `products` products.
double flops(const BenchSizes& s, double products) {
  return products * static_cast<double>(s.tokens) * static_cast<double>(s.sequence) *
         static_cast<double>(s.query_width());
}

std::string size_text(const BenchSizes& s) {
  return fmt::format("B {} T {} {}:{} x {}", s.tokens / s.sequence, s.sequence, s.heads, s.kv_heads,
                     s.head_size);
}

OpCase forward_case(BenchData& d, const BenchSizes& s, float probability) {
  const AttentionBackward all = attention_call(d, s, probability);
  const AttentionForward call{all.shape, all.q, all.k, all.v, all.output, all.log_sum_exp};
  Stream* stream = &d.stream();
  return {.size = size_text(s),
          .flops = flops(s, 2),
          .call = [=] { attention_forward(*stream, call); },
          .check = [=] { check_attention_forward(*stream, call); }};
}

OpCase backward_case(BenchData& d, const BenchSizes& s, float probability) {
  AttentionBackward call = attention_call(d, s, probability);
  call.d_output = d.random({s.tokens, s.query_width()}, s.type);
  const int64_t q = s.query_width(), kv = s.kv_width();
  const Matrix packed = d.poisoned({s.tokens, q + 2 * kv}, s.type);
  call.d_q = packed.columns(0, q);
  call.d_k = packed.columns(q, q + kv);
  call.d_v = packed.columns(q + kv, q + 2 * kv);
  Stream* stream = &d.stream();
  attention_forward(*stream, {call.shape, call.q, call.k, call.v, call.output, call.log_sum_exp});
  return {.size = size_text(s),
          .flops = flops(s, 5),
          .call = [=] { attention_backward(*stream, call); },
          .check = [=] { check_attention_backward(*stream, call); }};
}

OpCase rope_case(BenchData& d, const BenchSizes& s, bool inverse) {
  const int64_t half = s.head_size / 2;
  std::vector<int32_t> positions;
  std::vector<float> frequencies;
  for (int64_t r = 0; r < s.tokens; ++r) positions.push_back(static_cast<int32_t>(r % s.sequence));
  for (int64_t i = 0; i < half; ++i)
    frequencies.push_back(
        static_cast<float>(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half))));
  const TensorView x = d.random({s.tokens, s.query_width()}, s.type);
  const TensorView bits = d.bytes(std::as_bytes(std::span(frequencies)));
  const Rope call{.x = x,
                  .heads = s.heads,
                  .head_size = s.head_size,
                  .positions = d.integers(positions),
                  .frequencies = {bits.data, bits.shape, DType::f32},
                  .inverse = inverse};
  Stream* stream = &d.stream();
  RowCheck check{.what = inverse ? "rope_inverse" : "rope", .inputs = {x}, .outputs = {x}};
  check.call = [=] { rope(*stream, call); };
  check.reference = [=](int64_t row, const RowCheck::Rows& in) {
    std::vector<Expected> values(in[0].size());
    for (size_t c = 0; c < values.size(); ++c) {
      const size_t h = static_cast<size_t>(half), at = c % (2 * h), i = at % h;
      const float angle = static_cast<float>(positions[static_cast<size_t>(row)]) * frequencies[i];
      const double sine = (inverse ? -1 : 1) * std::sin(static_cast<double>(angle));
      const double a = in[0][c - at + i], b = in[0][c - at + i + h], cosine = std::cos(angle);
      values[c] = expected(at < h ? a * cosine - b * sine : b * cosine + a * sine,
                           std::abs(a) + std::abs(b));
    }
    return RowCheck::Outputs{values};
  };
  return {.size = fmt::format("{} x {} x {}", s.tokens, s.heads, s.head_size),
          .bytes = 2 * static_cast<double>(x.bytes()),
          .call = check.call,
          .check = [=] { check_rows(*stream, check); }};
}

}  // namespace

std::vector<OpRow> attention_rows(const BenchSizes& s) {
  return {{"attention_forward", [s](BenchData& d) { return forward_case(d, s, 0); }},
          {"attention_forward_dropout", [s](BenchData& d) { return forward_case(d, s, 0.1f); }},
          {"attention_backward", [s](BenchData& d) { return backward_case(d, s, 0); }},
          {"attention_backward_dropout", [s](BenchData& d) { return backward_case(d, s, 0.1f); }},
          {"rope", [s](BenchData& d) { return rope_case(d, s, false); }},
          {"rope_inverse", [s](BenchData& d) { return rope_case(d, s, true); }}};
}

}  // namespace trireme::app
