#include "ops/cuda/fused/attention_call.hpp"

#include <algorithm>

namespace trireme::inline TRIREME_BACKEND {

namespace {

// The documents of a micro-batch differ from one to the next; a graph is made for a power of two of
// them, the longest of a power of two, so that few are made.
constexpr int64_t kFewestSequences = 8, kShortestSequence = 128;
// Tokens of a document on average, below which the kernels on tiles are faster.
constexpr int64_t kShortDocument = 128;

int64_t next_power(int64_t value, int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(value, least))));
}

Visibility visibility_of(const AttentionShape& s) {
  if (s.query_offset == s.key_offset && s.query_length == s.key_length) return Visibility::causal;
  if (s.key_offset + s.key_length <= s.query_offset + 1) return Visibility::everything;
  return Visibility::other;
}

bool suits(const Matrix& m) {
  return m.dtype == DType::bf16 && m.stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
}

// Documents are few enough, whole, and of a kind that graphs of sequences take.
bool worth_sequences(const AttentionShape& s) {
  return s.documents > 0 && s.documents * kShortDocument <= s.batch * s.query_length &&
         visibility_of(s) == Visibility::causal && s.query_offset == 0 && s.head_size % 16 == 0;
}

// The largest divisor of `count` that is at most `most` (at least 1).
int64_t divisor_within(int64_t count, int64_t most) {
  for (int64_t d = std::min(count, most); d > 1; --d)
    if (count % d == 0) return d;
  return 1;
}

}  // namespace

size_t AttentionKeyHash::operator()(const AttentionKey& key) const {
  size_t hash = static_cast<size_t>(std::bit_cast<uint32_t>(key.scale));
  const auto mix = [&](int64_t value) {
    hash = (hash ^ static_cast<size_t>(value)) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  };
  for (int64_t v : {key.batch, key.query_length, key.key_length, key.heads, key.kv_heads,
                    key.head_size, key.tokens, int64_t{static_cast<uint8_t>(key.visibility)},
                    int64_t{key.deterministic}, int64_t{key.backward}})
    mix(v);
  for (int64_t v : key.strides) mix(v);
  for (int64_t v : key.stats_steps) mix(v);
  return hash;
}

bool has_documents(const AttentionShape& s) {
  return !s.starts.empty() && s.documents != s.batch;
}

bool suits_fused(const AttentionShape& s, std::initializer_list<Matrix> views) {
  if (s.dropout.probability != 0 || s.head_size % 8 != 0 || s.head_size > 128) return false;
  if (s.query_length == 0 || s.key_length == 0 || visibility_of(s) == Visibility::other)
    return false;
  if (has_documents(s) && !worth_sequences(s)) return false;
  return std::ranges::all_of(views, [](const Matrix& m) { return suits(m); });
}

AttentionKey attention_key(const AttentionShape& s, std::initializer_list<Matrix> views,
                           bool backward) {
  AttentionKey key;
  key.batch = s.batch;
  key.query_length = s.query_length;
  key.key_length = s.key_length;
  key.heads = s.heads;
  key.kv_heads = s.kv_heads;
  key.head_size = s.head_size;
  key.stats_steps = {s.heads * s.query_length, s.query_length, 1};
  if (has_documents(s)) {
    key.tokens = s.batch * s.query_length;
    key.batch = next_power(s.documents, kFewestSequences);
    key.query_length = next_power(s.longest_document, kShortestSequence);
    key.key_length = key.query_length;
    key.stats_steps = {s.heads * key.query_length, 1, s.heads};
  }
  key.scale = s.scale;
  key.visibility = visibility_of(s);
  key.deterministic = s.deterministic;
  key.backward = backward;
  std::ranges::transform(views, key.strides.begin(), [](const Matrix& m) { return m.stride; });
  return key;
}

int64_t most_workspace(const AttentionKey& key) {
  return key.documents() ? kGpuAttentionBytes : kGpuAttentionMostBytes;
}

AttentionKey smaller_piece(AttentionKey key, int64_t bytes) {
  const auto share = [&](int64_t count) {
    return divisor_within(count, std::min(count - 1, count * kGpuAttentionBytes / bytes));
  };
  if (key.batch > 1 && !key.documents()) {
    key.batch = share(key.batch);
  } else if (key.kv_heads > 1) {
    const int64_t group = key.heads / key.kv_heads;
    key.kv_heads = share(key.kv_heads);
    key.heads = group * key.kv_heads;
  }
  return key;
}

}  // namespace trireme::inline TRIREME_BACKEND
