// Times operations at the sizes of training and prints each as a share of a ceiling measured in the
// same run: a large copy for what moves bytes, a product of 8192^3 for what computes. Bytes are the
// least that the operation must move, each input read once and each output written once. Inputs are
// random: zeros run faster.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/random.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace {

constexpr int64_t kPattern = 1 << 22;  // elements of the random block that fills every input

class Bench {
 public:
  Bench() : stream_(device_.compute()) {
    const Shape shape{kPattern};
    pattern_f32_ = take(shape, DType::f32);
    pattern_bf16_ = take(shape, DType::bf16);
    std::vector<float> values(static_cast<size_t>(kPattern));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(mix64(i) >> 40) / 8388608.0f - 1.0f;
    copy_to_device(stream_, std::as_bytes(std::span(values)), pattern_f32_);
    cast(stream_, pattern_f32_, pattern_bf16_);
    std::printf("%s\n", device_.description().c_str());
  }

  Stream& stream() { return stream_; }
  TensorView take(Shape shape, DType type) {
    buffers_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(type), Memory::device);
    return {buffers_.back().data(), shape, type};
  }
  TensorView random(Shape shape, DType type) {
    const TensorView view = take(shape, type);
    const TensorView& pattern = type == DType::bf16 ? pattern_bf16_ : pattern_f32_;
    for (int64_t at = 0; at < view.elements(); at += kPattern) {
      const int64_t count = std::min(kPattern, view.elements() - at);
      copy(stream_, pattern.range(0, count), view.range(at, at + count));
    }
    return view;
  }
  TensorView integers(int64_t count, int64_t limit) {
    const TensorView view = take({count}, DType::i32);
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>(mix64(i + 77) % static_cast<uint64_t>(limit));
    copy_to_device(stream_, std::as_bytes(std::span(values)), view);
    stream_.synchronize();
    return view;
  }
  StepState* state() {
    auto* result = reinterpret_cast<StepState*>(take({64}, DType::i32).data);
    StepState values{};
    values.training = 1;
    values.correction1 = values.correction2 = 0.5f;
    values.learning_rate = 1e-4f;
    set_step(stream_, result, values);
    return result;
  }

  // Median of a few rounds, each long enough to hide the launches. Seconds.
  double time(const std::function<void()>& call) {
    call();
    stream_.synchronize();
    const double once = round(call, 1);
    const int repeats = std::clamp(static_cast<int>(0.01 / once), 2, 200);
    std::vector<double> rounds;
    for (int i = 0; i < 5; ++i) rounds.push_back(round(call, repeats));
    std::sort(rounds.begin(), rounds.end());
    return rounds[rounds.size() / 2];
  }
  void moves(const std::string& name, double bytes, const std::function<void()>& call) {
    const double rate = bytes / time(call);
    if (copy_rate_ == 0) copy_rate_ = rate;
    std::printf("%-44s %9.1f us %8.0f GB/s  %5.1f %% of copy\n", name.c_str(), bytes / rate * 1e6,
                rate / 1e9, 100 * rate / copy_rate_);
  }
  void computes(const std::string& name, double flops, const std::function<void()>& call) {
    const double rate = flops / time(call);
    if (product_rate_ == 0) product_rate_ = rate;
    std::printf("%-44s %9.1f us %8.1f TFLOP/s %5.1f %% of product\n", name.c_str(),
                flops / rate * 1e6, rate / 1e12, 100 * rate / product_rate_);
  }
  // Frees the memory of what was timed.
  void clear() {
    stream_.synchronize();
    buffers_.resize(2);
  }

 private:
  double round(const std::function<void()>& call, int repeats) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) call();
    stream_.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repeats;
  }

  Device device_{DeviceOptions{}};
  Stream& stream_;
  std::vector<Buffer> buffers_;
  TensorView pattern_f32_, pattern_bf16_;
  double copy_rate_ = 0, product_rate_ = 0;
};

void bench_copy(Bench& b) {
  const TensorView from = b.random({int64_t{1} << 29}, DType::f32);
  const TensorView to = b.take({int64_t{1} << 29}, DType::f32);
  b.moves("copy 2 GiB", 2.0 * static_cast<double>(from.bytes()),
          [&] { copy(b.stream(), from, to); });
  b.clear();
}

void bench_linear(Bench& b, const std::string& name, int64_t n, int64_t in, int64_t out,
                  Epilogue epilogue) {
  const double flops =
      2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out);
  Gemm forward;
  forward.a = b.random({n, in}, DType::bf16);
  forward.b = b.random({out, in}, DType::bf16);
  forward.c = b.take({n, out}, DType::bf16);
  forward.transpose_b = true;
  forward.epilogue = epilogue;
  if (epilogue != Epilogue::none) forward.bias = b.random({out}, DType::bf16);
  if (epilogue == Epilogue::bias_gelu) forward.pre_activation = b.take({n, out}, DType::bf16);
  b.computes(name + " forward", flops, [&] { gemm(b.stream(), forward); });
  Gemm input;
  input.a = b.random({n, out}, DType::bf16);
  input.b = forward.b;
  input.c = b.take({n, in}, DType::bf16);
  b.computes(name + " backward, input", flops, [&] { gemm(b.stream(), input); });
  Gemm weight;
  weight.a = input.a;
  weight.transpose_a = true;
  weight.b = forward.a;
  weight.c = b.random({out, in}, DType::f32);
  weight.beta = 1;
  b.computes(name + " backward, weight (f32 +=)", flops, [&] { gemm(b.stream(), weight); });
  b.clear();
}

void bench_norm(Bench& b, NormKind kind, int64_t rows, int64_t width, float dropout) {
  const Shape shape{rows, width};
  const std::string name = std::string(kind == NormKind::layer_norm ? "layer_norm " : "rms_norm ") +
                           std::to_string(rows) + "x" + std::to_string(width) +
                           (dropout > 0 ? " dropout" : "");
  const double element = 2.0 * static_cast<double>(rows) * static_cast<double>(width);
  NormForward f;
  f.kind = kind;
  f.residual_in = b.random(shape, DType::bf16);
  f.delta = b.random(shape, DType::bf16);
  f.residual_out = b.take(shape, DType::bf16);
  f.normalized = b.take(shape, DType::bf16);
  f.gain = b.random({width}, DType::bf16);
  f.dropout.probability = dropout;
  f.dropout.sequence = 1024;
  f.dropout.state = b.state();
  b.moves(name + " forward", 4 * element, [&] { norm_forward(b.stream(), f); });
  NormBackward g;
  g.kind = kind;
  g.x = f.residual_in;
  g.gain = f.gain;
  g.d_normalized = f.delta;
  g.d_residual = f.residual_out;
  g.d_gain = b.random({width}, DType::f32);
  if (kind == NormKind::layer_norm) g.d_bias = b.random({width}, DType::f32);
  b.moves(name + " backward", 4 * element, [&] { norm_backward(b.stream(), g); });
  b.clear();
}

void bench_pointwise(Bench& b, int64_t rows, int64_t width) {
  const Shape shape{rows, width};
  const std::string size = " " + std::to_string(rows) + "x" + std::to_string(width);
  const double element = 2.0 * static_cast<double>(rows) * static_cast<double>(width);
  const TensorView x = b.random(shape, DType::bf16), y = b.random(shape, DType::bf16);
  const TensorView z = b.take(shape, DType::bf16);
  const TensorView wide = b.random({rows, 2 * width}, DType::bf16);
  const TensorView d_wide = b.take({rows, 2 * width}, DType::bf16);
  const TensorView sum = b.random({width}, DType::f32);
  b.moves("gelu forward" + size, 2 * element, [&] { gelu_forward(b.stream(), x, z); });
  b.moves("gelu backward" + size, 3 * element, [&] { gelu_backward(b.stream(), x, y, z); });
  b.moves("swiglu forward" + size, 3 * element, [&] { swiglu_forward(b.stream(), wide, z); });
  b.moves("swiglu backward" + size, 5 * element,
          [&] { swiglu_backward(b.stream(), wide, y, d_wide); });
  ResidualAdd r{x, y, {}, z, {}};
  b.moves("residual add" + size, 3 * element, [&] { residual_add(b.stream(), r); });
  r.dropout.probability = 0.1f;
  r.dropout.sequence = 1024;
  r.dropout.state = b.state();
  b.moves("residual add, dropout" + size, 3 * element, [&] { residual_add(b.stream(), r); });
  b.moves("column sums" + size, element, [&] { add_column_sums(b.stream(), x, sum); });
  b.clear();
}

void bench_rope(Bench& b, int64_t rows, int64_t heads, int64_t size) {
  Rope call;
  call.x = b.random({rows, heads * size}, DType::bf16);
  call.heads = heads;
  call.head_size = size;
  call.positions = b.integers(rows, 8192);
  call.frequencies = b.random({size / 2}, DType::f32);
  b.moves("rope " + std::to_string(rows) + "x" + std::to_string(heads) + "x" + std::to_string(size),
          4.0 * static_cast<double>(rows * heads * size), [&] { rope(b.stream(), call); });
  b.clear();
}

void bench_loss(Bench& b, int64_t rows, int64_t cols) {
  CrossEntropy call;
  call.logits = b.random({rows, cols}, DType::bf16);
  call.valid = cols - 47;
  call.targets = b.integers(rows, call.valid);
  call.mask = b.random({rows}, DType::f32);
  call.row_max = b.take({rows}, DType::f32);
  call.sums = b.take({2, rows}, DType::f32);
  call.loss = b.take({rows}, DType::f32);
  call.state = b.state();
  const double bytes = 2.0 * static_cast<double>(rows) * static_cast<double>(cols);
  b.moves("cross entropy, max", bytes, [&] { cross_entropy_max(b.stream(), call); });
  b.moves("cross entropy, sums", bytes, [&] { cross_entropy_sums(b.stream(), call); });
  b.moves("cross entropy, finish", 2 * bytes, [&] { cross_entropy_finish(b.stream(), call); });
  b.clear();
}

void bench_embedding(Bench& b, int64_t tokens, int64_t rows, int64_t width) {
  const double bytes = 2.0 * static_cast<double>(tokens) * static_cast<double>(width);
  EmbeddingForward f;
  f.tokens = b.integers(tokens, rows);
  f.positions = b.integers(tokens, 1024);
  f.table = b.random({rows, width}, DType::bf16);
  f.position_table = b.random({1024, width}, DType::bf16);
  f.out = b.take({tokens, width}, DType::bf16);
  b.moves("embedding forward", 2 * bytes, [&] { embedding_forward(b.stream(), f); });
  EmbeddingBackward g;
  g.tokens = f.tokens;
  g.positions = f.positions;
  g.d_out = f.out;
  g.d_table = b.random({rows, width}, DType::f32);
  g.d_position_table = b.random({1024, width}, DType::f32);
  g.workspace = b.take({2 * tokens}, DType::i32);
  b.moves("embedding backward, both tables", 6 * bytes, [&] { embedding_backward(b.stream(), g); });
  b.clear();
}

void bench_adamw(Bench& b, int64_t n) {
  AdamW call;
  call.gradient = b.random({n}, DType::f32);
  call.master = b.random({n}, DType::f32);
  call.m = b.random({n}, DType::f32);
  call.v = b.take({n}, DType::f32);
  fill_zero(b.stream(), call.v);
  call.value = b.take({n}, DType::bf16);
  std::vector<AdamWSegment> segments;
  const int64_t piece = n / 300;
  for (int64_t i = 0; i < 300; ++i)
    segments.push_back({i * piece, piece, i % 2 == 0 ? 0.1f : 0.0f});
  call.segments = segments;
  const TensorView list =
      b.take({static_cast<int64_t>(segments.size() * sizeof(AdamWSegment)) / 4}, DType::i32);
  copy_to_device(b.stream(), std::as_bytes(std::span(segments)), list);
  call.device_segments = reinterpret_cast<const AdamWSegment*>(list.data);
  StepState* state = b.state();
  call.state = state;
  b.moves("adamw, 300 segments", 30.0 * static_cast<double>(piece * 300),
          [&] { adamw(b.stream(), call); });
  b.moves("squared norm", 4.0 * static_cast<double>(n),
          [&] { add_squared_norm(b.stream(), call.gradient, state); });
  b.clear();
}

struct AttentionSize {
  int64_t batch, length, heads, kv_heads, size;
  DType type = DType::bf16;
  float dropout = 0;
  bool deterministic = true;
  int64_t documents = 0;  // of equal length in a row
  bool counted = true;    // their number is given
};

void bench_attention(Bench& b, const AttentionSize& a) {
  const int64_t rows = a.batch * a.length, q = a.heads * a.size, kv = a.kv_heads * a.size;
  AttentionForward f;
  f.shape.batch = a.batch;
  f.shape.query_length = f.shape.key_length = a.length;
  f.shape.heads = a.heads;
  f.shape.kv_heads = a.kv_heads;
  f.shape.head_size = a.size;
  f.shape.scale = 0.1f;
  f.shape.deterministic = a.deterministic;
  f.shape.dropout.probability = a.dropout;
  f.shape.dropout.sequence = a.length;
  f.shape.dropout.state = b.state();
  const int64_t document = a.length / std::max(int64_t{1}, a.documents);
  if (a.documents > 0) {
    std::vector<int32_t> starts;
    for (int64_t row = 0; row < rows; ++row)
      starts.push_back(static_cast<int32_t>(row % a.length / document * document));
    f.shape.starts = b.take({rows}, DType::i32);
    copy_to_device(b.stream(), std::as_bytes(std::span(starts)), f.shape.starts);
    b.stream().synchronize();
  }
  if (a.counted) f.shape.documents = a.batch * a.documents;
  if (a.counted) f.shape.longest_document = document;
  const Matrix packed = b.random({rows, q + 2 * kv}, a.type);
  f.q = packed.columns(0, q);
  f.k = packed.columns(q, q + kv);
  f.v = packed.columns(q + kv, q + 2 * kv);
  f.output = b.take({rows, q}, a.type);
  f.log_sum_exp = b.take({a.batch, a.heads, a.length}, DType::f32);
  const double flops = 2.0 * static_cast<double>(a.batch * a.heads * a.size) *
                       static_cast<double>(a.length) * static_cast<double>(document);
  std::string name = "attention B" + std::to_string(a.batch) + " T" + std::to_string(a.length) +
                     " " + std::to_string(a.heads) + ":" + std::to_string(a.kv_heads) + "x" +
                     std::to_string(a.size) + " " + name_of(a.type);
  if (a.dropout > 0) name += " dropout";
  if (a.documents > 0) name += " " + std::to_string(a.documents) + " documents";
  if (!a.counted) name += ", own";
  b.computes(name + " forward", flops, [&] { attention_forward(b.stream(), f); });
  AttentionBackward g{f.shape,       f.q, f.k, f.v, f.output, b.random({rows, q}, a.type),
                      f.log_sum_exp, {},  {},  {}};
  const Matrix d_packed = b.take({rows, q + 2 * kv}, a.type);
  g.d_q = d_packed.columns(0, q);
  g.d_k = d_packed.columns(q, q + kv);
  g.d_v = d_packed.columns(q + kv, q + 2 * kv);
  b.computes(name + (a.deterministic ? " backward" : " backward, any order"), 2.5 * flops,
             [&] { attention_backward(b.stream(), g); });
  b.clear();
}

void bench_products(Bench& b) {
  for (const int64_t n : {16384, 65536}) {
    const std::string size = " n=" + std::to_string(n);
    bench_linear(b, "768 to 2304, bias" + size, n, 768, 2304, Epilogue::bias);
    bench_linear(b, "768 to 768, bias" + size, n, 768, 768, Epilogue::bias);
    bench_linear(b, "768 to 3072, gelu" + size, n, 768, 3072, Epilogue::bias_gelu);
    bench_linear(b, "3072 to 768, bias" + size, n, 3072, 768, Epilogue::bias);
  }
  bench_linear(b, "768 to 50304 n=16384", 16384, 768, 50304, Epilogue::none);
  bench_linear(b, "3072 to 16384 n=16384", 16384, 3072, 16384, Epilogue::none);
}

void bench_norms(Bench& b) {
  bench_norm(b, NormKind::layer_norm, 65536, 768, 0);
  bench_norm(b, NormKind::layer_norm, 65536, 768, 0.1f);
  bench_norm(b, NormKind::layer_norm, 16384, 1600, 0);
  bench_norm(b, NormKind::rms_norm, 16384, 4096, 0);
}

void bench_attentions(Bench& b) {
  bench_attention(b, {16, 1024, 12, 12, 64});
  bench_attention(b, {16, 1024, 12, 12, 64, DType::bf16, 0, false});
  bench_attention(b, {2, 4096, 32, 8, 128});
  bench_attention(b, {2, 4096, 32, 8, 128, DType::bf16, 0, false});
  bench_attention(b, {1, 8192, 64, 8, 128});
  bench_attention(b, {16, 1024, 12, 12, 64, DType::bf16, 0.1f});
  for (const bool counted : {true, false}) {
    for (const int64_t documents : {2, 8, 64})
      bench_attention(b, {4, 4096, 32, 8, 128, DType::bf16, 0, true, documents, counted});
    bench_attention(b, {16, 1024, 12, 12, 64, DType::bf16, 0, true, 4, counted});
  }
  bench_attention(b, {16, 1024, 12, 12, 64, DType::f32});
  bench_attention(b, {2, 4096, 32, 8, 128, DType::f32});
}

void bench_rest(Bench& b) {
  bench_pointwise(b, 65536, 3072);
  bench_rope(b, 32768, 40, 128);
  bench_loss(b, 8192, 50304);
  bench_embedding(b, 65536, 50304, 768);
  bench_adamw(b, 400000000);
}

// `only`: one of the groups below, or empty for all.
void run(const std::string& only) {
  Bench b;
  bench_copy(b);
  bench_linear(b, "product 8192^3", 8192, 8192, 8192, Epilogue::none);
  if (only.empty() || only == "products") bench_products(b);
  if (only.empty() || only == "norms") bench_norms(b);
  if (only.empty() || only == "attention") bench_attentions(b);
  if (only.empty() || only == "rest") bench_rest(b);
}

}  // namespace
}  // namespace trireme::inline TRIREME_BACKEND

int main(int argc, char** argv) {
  try {
    trireme::run(argc > 1 ? argv[1] : "");
    return 0;
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
