// Fused attention by cuDNN: causal, grouped key heads, on the strided views of packed q, k and v,
// with the log-sum-exp kept. Graphs are built once for each kind of call and kept with the stream.
// The only file that knows cuDNN.
#include <cudnn_frontend.h>

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ops/cuda/attention_fused.hpp"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

namespace fe = cudnn_frontend;

// The deterministic gradient keeps a copy of d_q for each block of keys. A call that wants more
// work memory than the first number goes in pieces, sequence by sequence or key head by key head;
// one key head that wants more than the second goes to the tiled kernel.
constexpr int64_t kWorkspace = int64_t{1} << 30;
constexpr int64_t kMostWorkspace = int64_t{4} << 30;

enum Slot : int64_t { kQ = 1, kK, kV, kO, kStats, kDO, kDQ, kDK, kDV };

enum class Visibility : uint8_t { causal, everything, other };

// Everything that a graph depends on.
struct Key {
  int64_t batch = 0, query_length = 0, key_length = 0, heads = 0, kv_heads = 0, head_size = 0;
  std::array<int64_t, 8> strides{};  // q, k, v, output, d_output, d_q, d_k, d_v
  int64_t stats_stride = 0;          // elements between sequences of log_sum_exp
  float scale = 1;
  Visibility visibility = Visibility::causal;
  bool deterministic = true, backward = false;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = static_cast<size_t>(__builtin_bit_cast(uint32_t, key.scale));
    const auto mix = [&](int64_t value) {
      hash = (hash ^ static_cast<size_t>(value)) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 29;
    };
    for (int64_t v :
         {key.batch, key.query_length, key.key_length, key.heads, key.kv_heads, key.head_size,
          key.stats_stride, int64_t{static_cast<uint8_t>(key.visibility)},
          int64_t{key.deterministic}, int64_t{key.backward}})
      mix(v);
    for (int64_t v : key.strides) mix(v);
    return hash;
  }
};

void check_dnn(cudnnStatus_t status, const char* what,
               std::source_location where = std::source_location::current()) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(ExitCode::device, fmt::format("cuDNN, {}: {}", what, cudnnGetErrorString(status)),
              where);
}

using Graph = fe::graph::Graph;

// A graph for whole calls or for pieces of them.
struct Plan {
  std::shared_ptr<Graph> graph;  // null: the library does not take the call
  Key piece;
};

// The handle, the graphs of one stream, and the work memory that the largest of them needs.
struct Graphs {
  explicit Graphs(cudaStream_t stream) {
    check_dnn(cudnnCreate(&handle), "start");
    check_dnn(cudnnSetStream(handle, stream), "choosing a stream");
  }
  ~Graphs() {
    plans.clear();
    static_cast<void>(cudnnDestroy(handle));
  }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  cudnnHandle_t handle = nullptr;
  std::unordered_map<Key, Plan, KeyHash> plans;
  Buffer workspace;
};

Visibility visibility_of(const AttentionShape& s) {
  if (s.query_offset == s.key_offset && s.query_length == s.key_length) return Visibility::causal;
  if (s.key_offset + s.key_length <= s.query_offset + 1) return Visibility::everything;
  return Visibility::other;
}

bool suits(const Matrix& m) {
  return m.dtype == DType::bf16 && m.stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
}

// `views` in the order of Key::strides.
bool suits(const AttentionShape& s, std::initializer_list<Matrix> views) {
  if (s.dropout.probability != 0 || s.head_size % 8 != 0 || s.head_size > 128) return false;
  if (s.query_length == 0 || s.key_length == 0 || visibility_of(s) == Visibility::other)
    return false;
  for (const Matrix& m : views)
    if (!suits(m)) return false;
  return true;
}

Key key_of(const AttentionShape& s, std::initializer_list<Matrix> views, bool backward) {
  Key key;
  key.batch = s.batch;
  key.query_length = s.query_length;
  key.key_length = s.key_length;
  key.heads = s.heads;
  key.kv_heads = s.kv_heads;
  key.head_size = s.head_size;
  key.stats_stride = s.heads * s.query_length;
  key.scale = s.scale;
  key.visibility = visibility_of(s);
  key.deterministic = s.deterministic;
  key.backward = backward;
  size_t i = 0;
  for (const Matrix& m : views) key.strides[i++] = m.stride;
  return key;
}

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// A matrix [B * length, heads * D] seen as [B, heads, length, D].
std::vector<int64_t> extents(const Key& key, int64_t heads, int64_t length) {
  return {key.batch, heads, length, key.head_size};
}
std::vector<int64_t> steps(const Key& key, int64_t length, int64_t stride) {
  return {length * stride, key.head_size, stride, 1};
}

Tensor input(Graph& graph, const Key& key, Slot slot, int64_t heads, int64_t length,
             int64_t stride) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(slot)
                          .set_dim(extents(key, heads, length))
                          .set_stride(steps(key, length, stride)));
}
void output(const Tensor& tensor, const Key& key, Slot slot, int64_t heads, int64_t length,
            int64_t stride) {
  tensor->set_output(true)
      .set_uid(slot)
      .set_dim(extents(key, heads, length))
      .set_stride(steps(key, length, stride));
}
std::vector<int64_t> stats_extents(const Key& key) {
  return {key.batch, key.heads, key.query_length, 1};
}
std::vector<int64_t> stats_steps(const Key& key) {
  return {key.stats_stride, key.query_length, 1, 1};
}

template <class Attributes>
void describe(Attributes& attributes, const Key& key) {
  attributes.set_attn_scale(key.scale);
  if (key.visibility != Visibility::causal) return;
  attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
  attributes.set_diagonal_band_right_bound(0);
}

void describe_forward(Graph& graph, const Key& key) {
  const Tensor q = input(graph, key, kQ, key.heads, key.query_length, key.strides[0]);
  const Tensor k = input(graph, key, kK, key.kv_heads, key.key_length, key.strides[1]);
  const Tensor v = input(graph, key, kV, key.kv_heads, key.key_length, key.strides[2]);
  fe::graph::SDPA_attributes attributes;
  attributes.set_name("attention").set_generate_stats(true);
  describe(attributes, key);
  const auto [o, stats] = graph.sdpa(q, k, v, attributes);
  output(o, key, kO, key.heads, key.query_length, key.strides[3]);
  stats->set_output(true)
      .set_uid(kStats)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim(stats_extents(key))
      .set_stride(stats_steps(key));
}

void describe_backward(Graph& graph, const Key& key) {
  const Tensor q = input(graph, key, kQ, key.heads, key.query_length, key.strides[0]);
  const Tensor k = input(graph, key, kK, key.kv_heads, key.key_length, key.strides[1]);
  const Tensor v = input(graph, key, kV, key.kv_heads, key.key_length, key.strides[2]);
  const Tensor o = input(graph, key, kO, key.heads, key.query_length, key.strides[3]);
  const Tensor d_o = input(graph, key, kDO, key.heads, key.query_length, key.strides[4]);
  const Tensor stats = graph.tensor(fe::graph::Tensor_attributes()
                                        .set_uid(kStats)
                                        .set_data_type(fe::DataType_t::FLOAT)
                                        .set_dim(stats_extents(key))
                                        .set_stride(stats_steps(key)));
  fe::graph::SDPA_backward_attributes attributes;
  attributes.set_name("attention gradient").set_deterministic_algorithm(key.deterministic);
  describe(attributes, key);
  const auto [d_q, d_k, d_v] = graph.sdpa_backward(q, k, v, o, d_o, stats, attributes);
  output(d_q, key, kDQ, key.heads, key.query_length, key.strides[5]);
  output(d_k, key, kDK, key.kv_heads, key.key_length, key.strides[6]);
  output(d_v, key, kDV, key.kv_heads, key.key_length, key.strides[7]);
}

// Null where cuDNN has no engine for it. Sets `bytes` to the work memory that it wants.
std::shared_ptr<Graph> build(cudnnHandle_t handle, const Key& key, int64_t& bytes) {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (key.backward)
    describe_backward(*graph, key);
  else
    describe_forward(*graph, key);
  if (graph->build(handle, {fe::HeurMode_t::A}).is_bad()) return nullptr;
  if (graph->get_workspace_size(bytes).is_bad()) return nullptr;
  return graph;
}

// The largest divisor of `count` that is at most `most` (at least 1).
int64_t divisor_within(int64_t count, int64_t most) {
  for (int64_t d = std::min(count, most); d > 1; --d)
    if (count % d == 0) return d;
  return 1;
}

// The next smaller piece after one that wanted `bytes`; the same one where there is none.
Key smaller_piece(Key key, int64_t bytes) {
  const auto share = [&](int64_t count) {
    return divisor_within(count, std::min(count - 1, count * kWorkspace / bytes));
  };
  if (key.batch > 1) {
    key.batch = share(key.batch);
  } else if (key.kv_heads > 1) {
    const int64_t group = key.heads / key.kv_heads;
    key.kv_heads = share(key.kv_heads);
    key.heads = group * key.kv_heads;
  }
  return key;
}

Plan make_plan(Graphs& graphs, const Key& whole) {
  Plan plan{nullptr, whole};
  int64_t bytes = 0;
  while (true) {
    plan.graph = build(graphs.handle, plan.piece, bytes);
    if (!plan.graph || bytes <= kWorkspace) break;
    const Key next = smaller_piece(plan.piece, bytes);
    if (next == plan.piece) break;
    plan.piece = next;
  }
  if (!plan.graph || bytes > kMostWorkspace) return {nullptr, whole};
  if (static_cast<size_t>(bytes) > std::max(kWorkBytes, graphs.workspace.bytes())) {
    graphs.workspace = Buffer();
    graphs.workspace = Buffer(static_cast<size_t>(bytes), Memory::device);
  }
  return plan;
}

// A tensor of a call: where it starts, and elements between sequences and between key heads.
struct Operand {
  Slot slot;
  std::byte* data;
  int64_t sequence_step, head_step;
  size_t element_bytes;
};

Operand operand(Slot slot, const Matrix& m, int64_t length, int64_t head_step) {
  return {slot, m.data, length * m.stride, head_step, size_of(m.dtype)};
}

bool run(Stream& stream, const Key& key, std::initializer_list<Operand> operands) {
  const auto make = [&] { return std::make_shared<Graphs>(stream.state().stream); };
  auto& graphs = stream.state().attached<Graphs>(Attachment::attention, make);
  auto found = graphs.plans.find(key);
  if (found == graphs.plans.end()) found = graphs.plans.emplace(key, make_plan(graphs, key)).first;
  const Plan& plan = found->second;
  if (!plan.graph) return false;
  std::byte* workspace =
      graphs.workspace.bytes() > 0 ? graphs.workspace.data() : work_memory(stream);
  std::unordered_map<int64_t, void*> pointers;
  for (int64_t sequence = 0; sequence < key.batch; sequence += plan.piece.batch)
    for (int64_t head = 0; head < key.kv_heads; head += plan.piece.kv_heads) {
      for (const Operand& o : operands)
        pointers[o.slot] =
            o.data +
            static_cast<size_t>(sequence * o.sequence_step + head * o.head_step) * o.element_bytes;
      fe::error_t status = plan.graph->execute(graphs.handle, pointers, workspace);
      require(status.is_good(), ExitCode::device, "cuDNN, attention: {}", status.get_message());
    }
  return true;
}

// Steps over key heads: the query heads of one key head lie side by side.
struct HeadSteps {
  int64_t query, key, stats;
};
HeadSteps head_steps(const AttentionShape& s) {
  const int64_t group = s.heads / s.kv_heads;
  return {group * s.head_size, s.head_size, group * s.query_length};
}
Operand stats_operand(const AttentionShape& s, const TensorView& log_sum_exp) {
  return {kStats, log_sum_exp.data, s.heads * s.query_length, head_steps(s).stats, sizeof(float)};
}

}  // namespace

std::string attention_description() {
  const size_t version = cudnnGetVersion();
  return fmt::format("attention by cuDNN {}.{}.{}", version / 10000, version / 100 % 100,
                     version % 100);
}

bool fused_attention_forward(Stream& stream, const AttentionForward& call) {
  const AttentionShape& s = call.shape;
  const std::initializer_list<Matrix> views{call.q, call.k, call.v, call.output};
  if (!suits(s, views)) return false;
  const HeadSteps step = head_steps(s);
  return run(
      stream, key_of(s, views, false),
      {operand(kQ, call.q, s.query_length, step.query), operand(kK, call.k, s.key_length, step.key),
       operand(kV, call.v, s.key_length, step.key),
       operand(kO, call.output, s.query_length, step.query), stats_operand(s, call.log_sum_exp)});
}

bool fused_attention_backward(Stream& stream, const AttentionBackward& call) {
  const AttentionShape& s = call.shape;
  const std::initializer_list<Matrix> views{call.q,        call.k,   call.v,   call.output,
                                            call.d_output, call.d_q, call.d_k, call.d_v};
  if (!suits(s, views)) return false;
  const HeadSteps step = head_steps(s);
  return run(
      stream, key_of(s, views, true),
      {operand(kQ, call.q, s.query_length, step.query), operand(kK, call.k, s.key_length, step.key),
       operand(kV, call.v, s.key_length, step.key),
       operand(kO, call.output, s.query_length, step.query), stats_operand(s, call.log_sum_exp),
       operand(kDO, call.d_output, s.query_length, step.query),
       operand(kDQ, call.d_q, s.query_length, step.query),
       operand(kDK, call.d_k, s.key_length, step.key),
       operand(kDV, call.d_v, s.key_length, step.key)});
}

}  // namespace trireme::inline TRIREME_BACKEND
