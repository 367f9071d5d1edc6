// Generation: rows into a cache, and one token of each sequence over it.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

struct DecodeCase {
  DType type;
  int64_t heads, kv_heads, size;
  int64_t capacity;
  std::vector<int32_t> rows;  // in a cache of four sequences
};

std::vector<Output> run(Device& device, const DecodeCase& c) {
  Memory memory(device);
  const auto n = static_cast<int64_t>(c.rows.size());
  const int64_t q = c.heads * c.size, kv = c.kv_heads * c.size;
  const TensorView packed = memory.uniform("qkv", {n, q + 2 * kv}, c.type, -2, 2);
  const TensorView cache = memory.uniform("cache", {4 * c.capacity, 2 * kv}, c.type, -2, 2);
  const TensorView rows = memory.integers(c.rows, {n});
  scatter_rows(memory.stream(), {Matrix(packed).columns(q, q + 2 * kv), rows, cache});
  AttentionDecode call;
  call.heads = c.heads;
  call.kv_heads = c.kv_heads;
  call.head_size = c.size;
  call.capacity = c.capacity;
  call.scale = 1.0f / std::sqrt(static_cast<float>(c.size));
  call.q = Matrix(packed).columns(0, q);
  call.k = Matrix(cache).columns(0, kv);
  call.v = Matrix(cache).columns(kv, 2 * kv);
  const TensorView output = memory.poisoned({n, q}, c.type);
  call.output = output;
  call.rows = rows;
  attention_decode(memory.stream(), call);
  return {memory.read("cache", cache, 0),
          memory.read("output", output, c.type == DType::bf16 ? kBf16 : 2 * kF32)};
}

}  // namespace

void decode_cases(Device& device, CaseList& list) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto add = [&](const char* name, const DecodeCase& c) {
      list.push_back(
          {std::string("decode_") + name_of(type) + name, [&device, c] { return run(device, c); }});
    };
    add("_first", {type, 1, 1, 8, 5, {10}});
    add("_odd", {type, 6, 3, 37, 50, {49, 3, 100, 187}});
    add("_d64", {type, 12, 12, 64, 700, {2799, 650}});
    add("_d128_grouped", {type, 32, 8, 128, 1100, {1099, 1100, 4399}});
    add("_d256", {type, 2, 1, 256, 90, {359, 4}});
  }
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
