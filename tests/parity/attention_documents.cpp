// Attention of rows of several documents, each of which sees itself alone.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

struct DocumentsCase {
  DType type;
  int64_t length, heads, kv_heads, size;
  std::vector<int64_t> documents;  // of the first of two rows; the other is cut after 2/3
  float dropout = 0;
  int64_t query_offset = 0, queries = 0, key_offset = 0, keys = 0;  // 0 queries: all
  bool counted = false;  // the number of documents is given
  bool deterministic = true;
};

// Of the query rows of the call.
std::vector<int32_t> starts_of(const DocumentsCase& c, int64_t queries) {
  std::vector<int32_t> first;
  for (const int64_t length : c.documents)
    first.insert(first.end(), static_cast<size_t>(length), static_cast<int32_t>(first.size()));
  std::vector<int32_t> starts(first.begin() + c.query_offset,
                              first.begin() + c.query_offset + queries);
  const auto cut = static_cast<int32_t>(2 * c.length / 3);
  for (int64_t i = c.query_offset; i < c.query_offset + queries; ++i)
    starts.push_back(i < cut ? 0 : cut);
  return starts;
}

void count_documents(const DocumentsCase& c, const std::vector<int32_t>& starts,
                     AttentionShape& shape) {
  for (size_t row = 0; c.counted && row < starts.size(); ++row) {
    const int64_t length = static_cast<int64_t>(row) % c.length + 1 - starts[row];
    shape.documents += length == 1;
    shape.longest_document = std::max(shape.longest_document, length);
  }
}

std::vector<Output> run(Device& device, const DocumentsCase& c) {
  Memory memory(device);
  AttentionShape s;
  s.batch = 2;
  s.query_length = c.queries > 0 ? c.queries : c.length;
  s.key_length = c.keys > 0 ? c.keys : c.length;
  s.query_offset = c.query_offset;
  s.key_offset = c.key_offset;
  s.heads = c.heads;
  s.kv_heads = c.kv_heads;
  s.head_size = c.size;
  s.scale = 1.0f / std::sqrt(static_cast<float>(c.size));
  s.dropout.probability = c.dropout;
  s.dropout.site = 3;
  s.dropout.state = memory.training_state();
  const int64_t rows = 2 * s.query_length, key_rows = 2 * s.key_length;
  const std::vector<int32_t> starts = starts_of(c, s.query_length);
  s.starts = memory.integers(starts, {rows});
  count_documents(c, starts, s);
  s.deterministic = c.deterministic;
  const int64_t q = c.heads * c.size, kv = c.kv_heads * c.size;
  const TensorView queries = memory.uniform("q", {rows, q}, c.type, -2, 2);
  const TensorView keys = memory.uniform("kv", {key_rows, 2 * kv}, c.type, -2, 2);
  const TensorView output = memory.poisoned({rows, q}, c.type);
  const TensorView lse = memory.poisoned({2, c.heads, s.query_length}, DType::f32);
  const Matrix k = Matrix(keys).columns(0, kv), v = Matrix(keys).columns(kv, 2 * kv);
  attention_forward(memory.stream(), {s, queries, k, v, output, lse});
  const TensorView d_output = memory.uniform("d_output", {rows, q}, c.type);
  const TensorView d_q = memory.poisoned({rows, q}, c.type);
  const TensorView d_kv = memory.poisoned({key_rows, 2 * kv}, c.type);
  attention_backward(memory.stream(),
                     {s, queries, k, v, output, d_output, lse, d_q, Matrix(d_kv).columns(0, kv),
                      Matrix(d_kv).columns(kv, 2 * kv)});
  const bool half = c.type == DType::bf16;
  return {memory.read("output", output, half ? 2 * kBf16 : 2 * kF32),
          memory.read("log_sum_exp", lse, half ? kBf16 / 10 : kF32),
          memory.read("d_q", d_q, half ? 4 * kBf16 : 4 * kF32),
          memory.read("d_kv", d_kv, half ? 4 * kBf16 : 4 * kF32)};
}

}  // namespace

void attention_documents_cases(Device& device, CaseList& list) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto add = [&](const char* name, DocumentsCase c) {
      const std::string whole = std::string("documents_") + name_of(type) + name;
      list.push_back({whole, [&device, c] { return run(device, c); }});
      if (c.queries > 0) return;
      c.counted = true;
      list.push_back({whole + "_counted", [&device, c] { return run(device, c); }});
      c.deterministic = false;
      list.push_back({whole + "_any_order", [&device, c] { return run(device, c); }});
    };
    std::vector<int64_t> mixed;  // of 1, 2, ... 20 tokens, and a long one
    for (int64_t length = 1; length <= 20; ++length) mixed.push_back(length);
    mixed.push_back(1790);
    add("_one", {type, 70, 2, 2, 64, {70}});
    add("_tiny", {type, 9, 1, 1, 8, {1, 1, 3, 4}});
    add("_odd", {type, 131, 3, 3, 10, {100, 1, 1, 29}});
    add("_d64", {type, 300, 4, 4, 64, {64, 64, 1, 130, 41}});
    add("_d128_grouped", {type, 200, 8, 2, 128, {3, 150, 47}});
    add("_d256", {type, 90, 2, 1, 256, {31, 59}});
    add("_d32_mixed", {type, 2000, 4, 2, 32, mixed});
    add("_d96_mixed", {type, 2000, 3, 1, 96, mixed});
    add("_d128_mixed", {type, 2000, 8, 2, 128, mixed});
    add("_d16_mixed", {type, 2000, 6, 3, 16, mixed});
    add("_d64_few", {type, 300, 4, 4, 64, {130, 1, 169}});
    add("_d64_long", {type, 1030, 4, 2, 64, {512, 1, 300, 217}});
    add("_dropout", {type, 150, 4, 2, 64, {80, 70}, 0.2f});
    add("_ring", {type, 300, 2, 2, 64, {64, 64, 1, 130, 41}, 0, 140, 100, 60, 120});
  }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
