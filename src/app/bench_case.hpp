// The list of operations that `trireme bench ops` checks and times, by kind.
//
// What is counted: `flops` are those of the mathematics (2 m n k for a product; for causal
// attention the half square: 2 B H D T^2 forward, 5 B H D T^2 backward, which computes the scores
// again). `bytes` are the least that an operation can move: each input read once, each output
// written once, what is updated in place both.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/bench_check.hpp"
#include "app/bench_data.hpp"

namespace trireme::app {

// Sizes of one layer and of the ends of a model, and the tokens that pass it at a time.
struct BenchSizes {
  DType type = DType::f32;
  int64_t tokens = 0, sequence = 0;
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_size = 0, ffn = 0;
  int64_t vocab = 0, padded_vocab = 0, positions = 0;
  bool gated = false, bias = false;
  int64_t optimizer_elements = 0;

  double element() const { return static_cast<double>(size_of(type)); }
  int64_t query_width() const { return heads * head_size; }
  int64_t kv_width() const { return kv_heads * head_size; }
};

// One operation with its data. `call` may be repeated any number of times.
struct OpCase {
  std::string size;             // "512 x 768 x 2304"
  double flops = 0, bytes = 0;  // of one call; one of them is 0
  std::function<void()> call;
  std::function<void()> check;  // calls once; throws Error(internal) where the result is wrong
};

// A row of the list. `make` takes its memory from `data`, which outlives the case.
struct OpRow {
  std::string name;
  std::function<OpCase(BenchData& data)> make;
};
std::vector<OpRow> product_rows(const BenchSizes& sizes);    // gemm, column sums
std::vector<OpRow> attention_rows(const BenchSizes& sizes);  // attention, rope
std::vector<OpRow> norm_rows(const BenchSizes& sizes);       // norms, residual add, dropout
std::vector<OpRow> pointwise_rows(const BenchSizes& sizes);  // activations, cast, add
std::vector<OpRow> end_rows(const BenchSizes& sizes);        // embedding, loss
std::vector<OpRow> optimizer_rows(const BenchSizes& sizes);  // AdamW, squared norm

}  // namespace trireme::app
