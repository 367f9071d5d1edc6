// What a fused attention graph is made for, and how a call that wants too much work memory
// (kGpuAttentionBytes) is cut into pieces, sequence by sequence or key head by key head. Knows
// nothing of the library that makes the graphs.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>

#include "trireme/ops/gpu_work.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

enum class Visibility : uint8_t { causal, everything, other };

// Everything that a graph depends on. With `tokens` a call of several documents: `batch` is then
// the number of sequences that the graph takes, at least the documents, each of up to
// `query_length` rows, and `tokens` the rows of all together.
struct AttentionKey {
  int64_t batch = 0, query_length = 0, key_length = 0, heads = 0, kv_heads = 0, head_size = 0;
  int64_t tokens = 0;
  std::array<int64_t, 8> strides{};      // q, k, v, output, d_output, d_q, d_k, d_v
  std::array<int64_t, 3> stats_steps{};  // of log_sum_exp, over sequences, heads and rows
  float scale = 1;
  Visibility visibility = Visibility::causal;
  bool deterministic = true, backward = false;

  bool documents() const { return tokens > 0; }
  bool operator==(const AttentionKey&) const = default;
};
struct AttentionKeyHash {
  size_t operator()(const AttentionKey& key) const;
};

// Whether the rows hold documents apart from each other; a row that is one document does not.
bool has_documents(const AttentionShape& shape);
// Whether a fused graph can serve the call. `views` in the order of AttentionKey::strides.
bool suits_fused(const AttentionShape& shape, std::initializer_list<Matrix> views);
AttentionKey attention_key(const AttentionShape& shape, std::initializer_list<Matrix> views,
                           bool backward);
// What the smallest piece may want; with more, the call goes to the kernels on tiles.
int64_t most_workspace(const AttentionKey& key);
// The next smaller piece after one that wanted `bytes`; the same one where there is none.
AttentionKey smaller_piece(AttentionKey key, int64_t bytes);

}  // namespace trireme::inline TRIREME_BACKEND
