// Bench cases: the ends of a model, embedding and cross-entropy.
#include <cmath>
#include <set>

#include "app/bench_case.hpp"

namespace trireme::app {
namespace {

std::vector<int32_t> positions_of(const BenchSizes& s) {
  std::vector<int32_t> positions;
  for (int64_t r = 0; r < s.tokens; ++r) positions.push_back(static_cast<int32_t>(r % s.sequence));
  return positions;
}

OpCase embedding_forward_case(BenchData& d, const BenchSizes& s) {
  const bool learned = s.positions > 0;
  EmbeddingForward call{.tokens = d.random_integers(s.tokens, s.vocab)};
  call.table = d.random({s.padded_vocab, s.hidden}, s.type);
  if (learned) {
    call.positions = d.integers(positions_of(s));
    call.position_table = d.random({s.positions, s.hidden}, s.type);
  }
  call.out = d.poisoned({s.tokens, s.hidden}, s.type);
  Stream* stream = &d.stream();
  RowCheck check{.what = "embedding_forward", .outputs = {call.out}};
  check.call = [=] { embedding_forward(*stream, call); };
  const std::vector<int32_t> tokens = read_integers(*stream, call.tokens);
  check.reference = [=](int64_t row, const RowCheck::Rows&) {
    std::vector<Expected> values;
    for (const float v : read_row(*stream, call.table, tokens[static_cast<size_t>(row)]))
      values.push_back(expected(v, std::abs(v)));
    if (learned) {
      const std::vector<float> p = read_row(*stream, call.position_table, row % s.sequence);
      for (size_t c = 0; c < p.size(); ++c) {
        values[c].value += p[c];
        values[c].slack += 1e-5 * std::abs(p[c]);
      }
    }
    return RowCheck::Outputs{values};
  };
  // A row of the table and a row of the output for each token; each position's row once.
  const double rows = static_cast<double>(2 * s.tokens + (learned ? s.sequence : 0));
  return {.size = fmt::format("{} of {} x {}", s.tokens, s.padded_vocab, s.hidden),
          .bytes = rows * static_cast<double>(s.hidden) * s.element(),
          .call = check.call,
          .check = [=] { check_rows(*stream, check); }};
}

// Rows of a table's gradient: those that were hit get the sum of their rows of d_out, others stay.
void check_scatter(Stream& stream, const EmbeddingBackward& call) {
  const std::vector<int32_t> tokens = read_integers(stream, call.tokens);
  const std::set<int32_t> hit(tokens.begin(), tokens.end());
  std::set<int64_t> chosen{tokens.front(), tokens.back()};
  for (const int64_t row : samples(call.d_table.shape[0], 12)) chosen.insert(row);
  for (const int64_t r : samples(call.tokens.elements(), 12))
    chosen.insert(tokens[static_cast<size_t>(r)]);
  const std::vector<int64_t> rows(chosen.begin(), chosen.end());
  const auto old = read_lines(stream, call.d_table, Axis::rows, rows);
  embedding_backward(stream, call);
  require_written(stream, call.d_table, "embedding_backward");
  const std::string what = "embedding_backward";
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<double> sum(old[i].begin(), old[i].end()), terms(sum.size());
    for (size_t r = 0; r < tokens.size(); ++r) {
      if (tokens[r] != rows[i]) continue;
      const std::vector<float> d_out = read_row(stream, call.d_out, static_cast<int64_t>(r));
      for (size_t c = 0; c < sum.size(); ++c) {
        sum[c] += d_out[c];
        terms[c] += std::abs(d_out[c]) + std::abs(old[i][c]);
      }
    }
    const std::vector<float> values = read_row(stream, call.d_table, rows[i]);
    for (size_t c = 0; c < sum.size(); ++c)
      require_near({what, rows[i], static_cast<int64_t>(c)}, DType::f32, values[c],
                   {.value = sum[c],
                    .slack = 1e-5 * terms[c],
                    .exact = !hit.contains(static_cast<int32_t>(rows[i]))});
  }
}

// A position's gradient: the sum over the sequences.
void check_positions(Stream& stream, const EmbeddingBackward& call, int64_t sequence,
                     const std::function<void()>& check_table) {
  const std::vector<int64_t> rows = samples(sequence, 4);
  const auto old = read_lines(stream, call.d_position_table, Axis::rows, rows);
  check_table();  // calls the operation
  const std::string what = "embedding_backward, positions";
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<double> sum(old[i].begin(), old[i].end()), terms(sum.size(), 1);
    for (int64_t r = rows[i]; r < call.tokens.elements(); r += sequence) {
      const std::vector<float> d_out = read_row(stream, call.d_out, r);
      for (size_t c = 0; c < sum.size(); ++c) {
        sum[c] += d_out[c];
        terms[c] += std::abs(d_out[c]);
      }
    }
    const std::vector<float> values = read_row(stream, call.d_position_table, rows[i]);
    for (size_t c = 0; c < sum.size(); ++c)
      require_near({what, rows[i], static_cast<int64_t>(c)}, DType::f32, values[c],
                   expected(sum[c], terms[c]));
  }
}

OpCase embedding_backward_case(BenchData& d, const BenchSizes& s) {
  const bool learned = s.positions > 0;
  EmbeddingBackward call{.tokens = d.random_integers(s.tokens, s.vocab)};
  call.d_out = d.random({s.tokens, s.hidden}, s.type);
  call.d_table = d.random({s.padded_vocab, s.hidden}, DType::f32);
  if (learned) {
    call.positions = d.integers(positions_of(s));
    call.d_position_table = d.random({s.positions, s.hidden}, DType::f32);
  }
  call.workspace = d.random_integers(2 * s.tokens, s.vocab);
  Stream* stream = &d.stream();
  const std::vector<int32_t> tokens = read_integers(*stream, call.tokens);
  const auto hit = static_cast<double>(std::set(tokens.begin(), tokens.end()).size());
  const double updated = hit + (learned ? static_cast<double>(s.sequence) : 0);
  return {.size = fmt::format("{} of {} x {}", s.tokens, s.padded_vocab, s.hidden),
          .bytes =
              static_cast<double>(call.d_out.bytes()) + 8 * updated * static_cast<double>(s.hidden),
          .call = [=] { embedding_backward(*stream, call); },
          .check =
              [=] {
                if (!learned) return check_scatter(*stream, call);
                check_positions(*stream, call, s.sequence, [&] { check_scatter(*stream, call); });
              }};
}

void cross_entropy(Stream& stream, const CrossEntropy& call) {
  cross_entropy_max(stream, call);
  cross_entropy_sums(stream, call);
  cross_entropy_finish(stream, call);
}

// Loss and gradient of one row from its logits before the call.
void check_loss_row(Stream& stream, const CrossEntropy& call, int64_t row,
                    const std::vector<float>& logits, float loss) {
  const auto valid = static_cast<size_t>(call.valid);
  const auto at = static_cast<size_t>(row);
  const auto target = static_cast<size_t>(read_integers(stream, call.targets)[at]);
  const double mask = read(stream, call.mask)[at];
  double top = -INFINITY, sum = 0;
  for (size_t c = 0; c < valid; ++c) top = std::max<double>(top, logits[c]);
  for (size_t c = 0; c < valid; ++c) sum += std::exp(logits[c] - top);
  const std::string what = "cross_entropy";
  require_near({what + ", loss", row, 0}, DType::f32, loss,
               expected(mask * (std::log(sum) + top - logits[target]), 10 * mask));
  const std::vector<float> gradient = read_row(stream, call.logits, row);
  for (size_t c = 0; c < gradient.size(); ++c) {
    const double p = c < valid ? std::exp(logits[c] - top) / sum : 0;
    const double value = mask * (p - (c == target ? 1 : 0));
    require_near({what, row, static_cast<int64_t>(c)}, call.logits.dtype, gradient[c],
                 {.value = value, .slack = 2e-5 * p, .exact = c >= valid || mask == 0});
  }
}

void check_cross_entropy(Stream& stream, const CrossEntropy& call) {
  const std::vector<int64_t> rows = samples(call.logits.rows, 8);
  const auto before = read_lines(stream, call.logits, Axis::rows, rows);
  const StepState start = get_step(stream, call.state);
  cross_entropy(stream, call);
  require_written(stream, call.logits, "cross_entropy");
  const std::vector<float> loss = read(stream, call.loss), mask = read(stream, call.mask);
  for (size_t i = 0; i < rows.size(); ++i)
    check_loss_row(stream, call, rows[i], before[i], loss[static_cast<size_t>(rows[i])]);
  double total = start.sums[0], counted = start.sums[1];
  for (const float value : loss) total += value;
  for (const float value : mask) counted += value;
  const StepState state = get_step(stream, call.state);
  const std::string what = "cross_entropy, sums of the step";
  require_near({what, 0, 0}, DType::f32, state.sums[0], expected(total, total));
  require_near({what, 1, 0}, DType::f32, state.sums[1], {.value = counted, .exact = true});
}

OpCase cross_entropy_case(BenchData& d, const BenchSizes& s) {
  std::vector<float> mask;
  for (int64_t r = 0; r < s.tokens; ++r) mask.push_back(r % 7 == 3 ? 0.0f : 1.0f);
  const TensorView bits = d.bytes(std::as_bytes(std::span(mask)));
  const TensorView logits = d.random({s.tokens, s.padded_vocab}, s.type, -4, 4);
  const CrossEntropy call{.logits = logits,
                          .valid = s.vocab,
                          .targets = d.random_integers(s.tokens, s.vocab),
                          .mask = {bits.data, bits.shape, DType::f32},
                          .row_max = d.poisoned({s.tokens}, DType::f32),
                          .sums = d.poisoned({2, s.tokens}, DType::f32),
                          .loss = d.poisoned({s.tokens}, DType::f32),
                          .state = d.state(bench_step_state())};
  Stream* stream = &d.stream();
  // Each of the three calls reads the logits, the last one also writes them.
  return {.size = fmt::format("{} x {}", s.tokens, s.padded_vocab),
          .bytes = 4 * static_cast<double>(logits.bytes()),
          .call = [=] { cross_entropy(*stream, call); },
          .check = [=] { check_cross_entropy(*stream, call); }};
}

}  // namespace

std::vector<OpRow> end_rows(const BenchSizes& s) {
  return {{"embedding_forward", [s](BenchData& d) { return embedding_forward_case(d, s); }},
          {"embedding_backward", [s](BenchData& d) { return embedding_backward_case(d, s); }},
          {"cross_entropy", [s](BenchData& d) { return cross_entropy_case(d, s); }}};
}

}  // namespace trireme::app
