#include "app/bench_attention_check.hpp"

#include <array>
#include <cmath>

#include "trireme/ops/dropout_mask.hpp"

namespace trireme::app {
namespace {

using Values = std::vector<double>;

// Rows of one sequence of a matrix on the host.
class Sequence {
 public:
  Sequence(Stream& stream, const Matrix& m, int64_t sequence, int64_t length, int64_t head_size)
      : width_(m.cols), head_size_(head_size) {
    const auto skip = static_cast<size_t>(sequence * length * m.stride) * size_of(m.dtype);
    for_each_row(stream, {m.data + skip, length, m.cols, m.stride, m.dtype},
                 [&](int64_t, std::span<const float> row) {
                   values_.insert(values_.end(), row.begin(), row.end());
                 });
  }
  std::span<const float> at(int64_t position, int64_t head) const {
    return std::span(values_).subspan(static_cast<size_t>(position * width_ + head * head_size_),
                                      static_cast<size_t>(head_size_));
  }

 private:
  int64_t width_, head_size_;
  std::vector<float> values_;
};

template <class A, class B>
double dot(const A& a, const B& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// One sequence with what its gradients need.
class Reference {
 public:
  Reference(Stream& stream, const AttentionForward& call, int64_t sequence)
      : shape_(call.shape),
        sequence_(sequence),
        q_(stream, call.q, sequence, shape_.query_length, shape_.head_size),
        k_(stream, call.k, sequence, shape_.key_length, shape_.head_size),
        v_(stream, call.v, sequence, shape_.key_length, shape_.head_size) {}

  double score(int64_t query, int64_t key, int64_t head) const {
    return shape_.scale * dot(q_.at(query, head), k_.at(key, kv(head)));
  }
  // Logarithm of the sum of the exponentials of a query's scores.
  double log_sum(int64_t query, int64_t head) const {
    double top = -INFINITY, sum = 0;
    for (int64_t key = 0; key <= query; ++key) top = std::max(top, score(query, key, head));
    for (int64_t key = 0; key <= query; ++key) sum += std::exp(score(query, key, head) - top);
    return top + std::log(sum);
  }
  double factor(int64_t query, int64_t key, int64_t head) const {
    const DropoutSite& site = shape_.dropout;
    if (site.probability == 0) return 1;
    const StepState state = bench_step_state();
    const PhiloxWords w =
        dropout_words(dropout_key(state.seed, state.step, site.site,
                                  static_cast<uint32_t>(shape_.first_head + head)),
                      static_cast<uint32_t>(key / 4), static_cast<uint32_t>(query),
                      state.first_sample + site.sample_offset + sequence_);
    const std::array<uint32_t, 4> words{w.x, w.y, w.z, w.w};
    const bool dropped = words[static_cast<size_t>(key % 4)] < dropout_threshold(site.probability);
    return dropped ? 0 : 1 / (1 - static_cast<double>(site.probability));
  }
  int64_t kv(int64_t head) const { return head / (shape_.heads / shape_.kv_heads); }
  const Sequence& q() const { return q_; }
  const Sequence& k() const { return k_; }
  const Sequence& v() const { return v_; }

 private:
  AttentionShape shape_;
  int64_t sequence_;
  Sequence q_, k_, v_;
};

// A vector of one head that adds up, with the magnitudes of its terms.
struct Sum {
  Values value, terms;
  explicit Sum(int64_t size) : value(static_cast<size_t>(size)), terms(value.size()) {}
  void add(double weight, double weight_terms, std::span<const float> vector) {
    for (size_t i = 0; i < value.size(); ++i) {
      value[i] += weight * vector[i];
      terms[i] += weight_terms * std::abs(vector[i]);
    }
  }
};

// Probabilities and score gradients may pass through the compute type.
double slack_of(DType type) {
  return type == DType::bf16 ? 0x1p-7 : 2e-5;
}

void require_head(const std::string& what, const Sequence& values, DType type,
                  std::array<int64_t, 2> at, const Sum& sum) {
  const std::span<const float> found = values.at(at[0], at[1]);
  for (size_t i = 0; i < found.size(); ++i)
    require_near({what, at[0], at[1] * static_cast<int64_t>(found.size()) + int64_t(i)}, type,
                 found[i], {sum.value[i], slack_of(type) * sum.terms[i]});
}

void check_query(const AttentionForward& call, const Reference& reference, const Sequence& output,
                 std::array<int64_t, 2> at, float log_sum_exp) {
  const auto [query, head] = at;
  const double log_sum = reference.log_sum(query, head);
  require_near({"attention_forward, log-sum-exp", query, head}, DType::f32, log_sum_exp,
               expected(log_sum, std::abs(log_sum) + 1));
  Sum sum(call.shape.head_size);
  for (int64_t key = 0; key <= query; ++key) {
    const double p = std::exp(reference.score(query, key, head) - log_sum);
    const double weight = p * reference.factor(query, key, head);
    sum.add(weight, weight, reference.v().at(key, reference.kv(head)));
  }
  require_head("attention_forward", output, call.output.dtype, at, sum);
}

// What the backward pass reads and writes of one sequence.
struct Gradients {
  const Reference& reference;
  Sequence output, d_output;
  std::vector<float> log_sum_exp;  // [H, T]
  int64_t length;

  double probability(int64_t query, int64_t key, int64_t head) const {
    return std::exp(reference.score(query, key, head) -
                    log_sum_exp[static_cast<size_t>(head * length + query)]);
  }
  // Gradient of a score, and the magnitude of its terms.
  std::array<double, 2> d_score(int64_t query, int64_t key, int64_t head) const {
    const auto dy = d_output.at(query, head);
    const double through =
        reference.factor(query, key, head) * dot(dy, reference.v().at(key, reference.kv(head)));
    const double common = dot(dy, output.at(query, head));
    const double p = probability(query, key, head);
    return {p * (through - common), p * (std::abs(through) + std::abs(common))};
  }
};

Sum expected_d_q(const AttentionShape& shape, const Gradients& g, std::array<int64_t, 2> at) {
  const auto [query, head] = at;
  Sum sum(shape.head_size);
  for (int64_t key = 0; key <= query; ++key) {
    const auto [d, terms] = g.d_score(query, key, head);
    sum.add(shape.scale * d, shape.scale * terms, g.reference.k().at(key, g.reference.kv(head)));
  }
  return sum;
}

// Gradients of a key and of its value: over all later queries of the heads that share it.
std::array<Sum, 2> expected_d_kv(const AttentionShape& shape, const Gradients& g,
                                 std::array<int64_t, 2> at) {
  const auto [key, kv_head] = at;
  const int64_t shared = shape.heads / shape.kv_heads;
  Sum d_k(shape.head_size), d_v(shape.head_size);
  for (int64_t head = kv_head * shared; head < (kv_head + 1) * shared; ++head) {
    for (int64_t query = key; query < shape.query_length; ++query) {
      const auto [d, terms] = g.d_score(query, key, head);
      d_k.add(shape.scale * d, shape.scale * terms, g.reference.q().at(query, head));
      const double weight = g.probability(query, key, head) * g.reference.factor(query, key, head);
      d_v.add(weight, weight, g.d_output.at(query, head));
    }
  }
  return {d_k, d_v};
}

void check_gradients(Stream& stream, const AttentionBackward& call, const Gradients& g,
                     int64_t sequence) {
  const AttentionShape& s = call.shape;
  const Sequence d_q(stream, call.d_q, sequence, s.query_length, s.head_size);
  const Sequence d_k(stream, call.d_k, sequence, s.key_length, s.head_size);
  const Sequence d_v(stream, call.d_v, sequence, s.key_length, s.head_size);
  const DType type = call.d_q.dtype;
  for (const int64_t position : samples(s.query_length, 4)) {
    for (const int64_t head : samples(s.heads, 2))
      require_head("attention_backward, d_q", d_q, type, {position, head},
                   expected_d_q(s, g, {position, head}));
    for (const int64_t head : samples(s.kv_heads, 2)) {
      const auto [of_key, of_value] = expected_d_kv(s, g, {position, head});
      require_head("attention_backward, d_k", d_k, type, {position, head}, of_key);
      require_head("attention_backward, d_v", d_v, type, {position, head}, of_value);
    }
  }
}

}  // namespace

void check_attention_forward(Stream& stream, const AttentionForward& call) {
  const AttentionShape& s = call.shape;
  attention_forward(stream, call);
  require_written(stream, call.output, "attention_forward");
  const std::vector<float> log_sums = read(stream, call.log_sum_exp);
  for (const int64_t sequence : samples(s.batch, 2)) {
    const Reference reference(stream, call, sequence);
    const Sequence output(stream, call.output, sequence, s.query_length, s.head_size);
    for (const int64_t query : samples(s.query_length, 6))
      for (const int64_t head : samples(s.heads, 3)) {
        const int64_t at = (sequence * s.heads + head) * s.query_length + query;
        check_query(call, reference, output, {query, head}, log_sums[static_cast<size_t>(at)]);
      }
  }
}

void check_attention_backward(Stream& stream, const AttentionBackward& call) {
  const AttentionShape& s = call.shape;
  attention_backward(stream, call);
  for (const Matrix& gradient : {call.d_q, call.d_k, call.d_v})
    require_written(stream, gradient, "attention_backward");
  const AttentionForward forward{s, call.q, call.k, call.v, call.output, call.log_sum_exp};
  for (const int64_t sequence : samples(s.batch, 2)) {
    const Reference reference(stream, forward, sequence);
    const Gradients gradients{
        reference, Sequence(stream, call.output, sequence, s.query_length, s.head_size),
        Sequence(stream, call.d_output, sequence, s.query_length, s.head_size),
        read(stream, call.log_sum_exp.rows(sequence, sequence + 1)), s.query_length};
    check_gradients(stream, call, gradients, sequence);
  }
}

}  // namespace trireme::app
