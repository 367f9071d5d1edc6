// Attention problems for tests, and their solution in f64 by plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/ops_data.hpp"
#include "trireme/ops/dropout_mask.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::test {

inline constexpr double kNone = -std::numeric_limits<double>::infinity();

// One attention problem with all its tensors: inputs random, outputs poisoned.
struct Problem {
  Problem(const AttentionShape& s, DType type, uint32_t seed = 1, int64_t padding = 3)
      : shape(s),
        q(TestMatrix::random(query_rows(), query_width(), type, seed, padding, 2)),
        k(TestMatrix::random(key_rows(), key_width(), type, seed + 1, padding, 2)),
        v(TestMatrix::random(key_rows(), key_width(), type, seed + 2, padding)),
        d_output(TestMatrix::random(query_rows(), query_width(), type, seed + 3, padding)),
        output(query_rows(), query_width(), type, padding),
        d_q(query_rows(), query_width(), type, padding),
        d_k(key_rows(), key_width(), type, padding),
        d_v(key_rows(), key_width(), type, padding),
        log_sum_exp(s.batch * s.heads, s.query_length, DType::f32) {}

  int64_t query_rows() const { return shape.batch * shape.query_length; }
  int64_t key_rows() const { return shape.batch * shape.key_length; }
  int64_t query_width() const { return shape.heads * shape.head_size; }
  int64_t key_width() const { return shape.kv_heads * shape.head_size; }
  TensorView lse() { return log_sum_exp.tensor({shape.batch, shape.heads, shape.query_length}); }
  void forward(Device& device) {
    attention_forward(device.compute(),
                      {shape, q.view(), k.view(), v.view(), output.view(), lse()});
  }
  void backward(Device& device) {
    attention_backward(device.compute(),
                       {shape, q.view(), k.view(), v.view(), output.view(), d_output.view(), lse(),
                        d_q.view(), d_k.view(), d_v.view()});
  }
  bool padding_untouched() const {
    return output.padding_untouched() && d_q.padding_untouched() && d_k.padding_untouched() &&
           d_v.padding_untouched();
  }

  AttentionShape shape;
  TestMatrix q, k, v, d_output, output, d_q, d_k, d_v, log_sum_exp;
};

// 0 or 1 / (1 - p), from the address arithmetic alone.
inline double dropout_factor(const AttentionShape& s, int64_t b, int64_t h, int64_t query,
                             int64_t key) {
  if (s.dropout.probability == 0 || s.dropout.state->training == 0) return 1;
  const StepState& state = *s.dropout.state;
  const uint64_t address =
      dropout_key(state.seed, state.step, s.dropout.site, static_cast<uint32_t>(s.first_head + h));
  const PhiloxWords w =
      dropout_words(address, static_cast<uint32_t>(key / 4), static_cast<uint32_t>(query),
                    state.first_sample + s.dropout.sample_offset + b);
  const uint32_t word[] = {w.x, w.y, w.z, w.w};
  const bool dropped = word[key % 4] < dropout_threshold(s.dropout.probability);
  return dropped ? 0 : 1 / (1 - static_cast<double>(s.dropout.probability));
}

struct Reference {
  std::vector<double> output, log_sum_exp, d_q, d_k, d_v;
};

// Plain loops over one query at a time.
inline Reference reference(const Problem& problem) {
  const AttentionShape& s = problem.shape;
  const auto q = problem.q.get(), k = problem.k.get(), v = problem.v.get();
  const auto d_out = problem.d_output.get();
  const size_t size = static_cast<size_t>(s.head_size);
  Reference r;
  r.output.assign(q.size(), 0);
  r.d_q.assign(q.size(), 0);
  r.d_k.assign(k.size(), 0);
  r.d_v.assign(k.size(), 0);
  const double scale = static_cast<double>(s.scale);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.query_length; ++i) {
        const size_t qi = static_cast<size_t>((b * s.query_length + i) * s.heads + h) * size;
        const auto key_at = [&](int64_t j) {
          return static_cast<size_t>((b * s.key_length + j) * s.kv_heads +
                                     h / (s.heads / s.kv_heads)) *
                 size;
        };
        const int64_t seen =
            std::clamp<int64_t>(s.query_offset + i - s.key_offset + 1, 0, s.key_length);
        const size_t row = static_cast<size_t>(b * s.query_length + i);
        const int64_t from = s.starts.empty() ? 0 : s.starts.host<int32_t>()[row] - s.key_offset;
        std::vector<double> p, slope;
        double largest = kNone, sum = 0, mean_slope = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0, d = 0;
          for (size_t e = 0; e < size; ++e) {
            score += static_cast<double>(q[qi + e]) * static_cast<double>(k[key_at(j) + e]);
            d += static_cast<double>(d_out[qi + e]) * static_cast<double>(v[key_at(j) + e]);
          }
          p.push_back(j < from ? kNone : score * scale);
          slope.push_back(d);
          largest = std::max(largest, p.back());
        }
        if (largest == kNone) p.clear();
        for (double& x : p) sum += x = std::exp(x - largest);
        r.log_sum_exp.push_back(p.empty() ? kNone : largest + std::log(sum));
        for (size_t j = 0; j < p.size(); ++j) {
          p[j] /= sum;
          slope[j] *=
              dropout_factor(s, b, h, s.query_offset + i, s.key_offset + static_cast<int64_t>(j));
          mean_slope += p[j] * slope[j];
        }
        for (size_t j = 0; j < p.size(); ++j) {
          const size_t kj = key_at(static_cast<int64_t>(j));
          const double dropped = p[j] * dropout_factor(s, b, h, s.query_offset + i,
                                                       s.key_offset + static_cast<int64_t>(j));
          const double ds = p[j] * (slope[j] - mean_slope) * scale;
          for (size_t e = 0; e < size; ++e) {
            r.output[qi + e] += dropped * static_cast<double>(v[kj + e]);
            r.d_v[kj + e] += dropped * static_cast<double>(d_out[qi + e]);
            r.d_q[qi + e] += ds * static_cast<double>(k[kj + e]);
            r.d_k[kj + e] += ds * static_cast<double>(q[qi + e]);
          }
        }
      }
    }
  }
  return r;
}

}  // namespace trireme::test
