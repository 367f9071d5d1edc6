// Fused attention by cuDNN: causal, grouped key heads, on the strided views of packed q, k and v,
// with the log-sum-exp kept. Documents that do not see each other are sequences of different
// lengths to it. Graphs are built once for each kind of call and kept with the stream. The only
// file that knows cuDNN.
#include <cudnn_frontend.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "ops/cuda/attention_fused.hpp"
#include "ops/cuda/attention_ranges.hpp"
#include "ops/cuda/fused/attention_call.hpp"
#include "ops/cuda/work_memory.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

namespace fe = cudnn_frontend;

enum Slot : int64_t { kQ = 1, kK, kV, kO, kStats, kDO, kDQ, kDK, kDV };
// Of documents: their lengths, and behind them where they begin in each operand, by slot.
constexpr int64_t kLengths = 16;
int64_t offsets_of(Slot slot) {
  return kLengths + slot;
}

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
  AttentionKey piece;
};

// Device memory for the documents of one call.
struct Ranges {
  int64_t capacity = 0;
  int64_t* offsets = nullptr;
  int32_t *lengths = nullptr, *begins = nullptr;
  float* stats = nullptr;  // log_sum_exp, [tokens, heads]

  static size_t bytes(const AttentionKey& key) {
    const auto sums = static_cast<size_t>(key.tokens * key.heads);
    return sizeof(int64_t) * kRangeOperands * offsets_step(key.batch) +
           2 * sizeof(int32_t) * offsets_step(key.batch) + sizeof(float) * sums;
  }
  Ranges(const AttentionKey& key, std::byte* memory)
      : capacity(key.batch), offsets(reinterpret_cast<int64_t*>(memory)) {
    const size_t step = offsets_step(capacity);
    lengths = reinterpret_cast<int32_t*>(offsets + kRangeOperands * step);
    begins = lengths + step;
    stats = reinterpret_cast<float*>(begins + step);
  }
  int64_t* offsets_in(Slot slot) const {
    return offsets + static_cast<size_t>(slot - 1) * offsets_step(capacity);
  }
  // Graphs take operands at multiples of 16 bytes.
  static size_t offsets_step(int64_t capacity) { return static_cast<size_t>(capacity) + 4; }
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
  std::unordered_map<AttentionKey, Plan, AttentionKeyHash> plans;
  Buffer workspace, ranges;
};

void grow(Buffer& buffer, size_t bytes) {
  if (bytes <= buffer.bytes()) return;
  buffer = Buffer();
  buffer = Buffer(bytes, Memory::device);
}

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// A matrix [B * length, heads * D] seen as [B, heads, length, D].
std::vector<int64_t> extents(const AttentionKey& key, int64_t heads, int64_t length) {
  return {key.batch, heads, length, key.head_size};
}
std::vector<int64_t> steps(const AttentionKey& key, int64_t length, int64_t stride) {
  return {length * stride, key.head_size, stride, 1};
}

// Null where every sequence has all its rows.
Tensor offsets(Graph& graph, const AttentionKey& key, Slot slot) {
  if (!key.documents()) return nullptr;
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(offsets_of(slot))
                          .set_data_type(fe::DataType_t::INT64)
                          .set_dim({key.batch + 1, 1, 1, 1})
                          .set_stride({1, 1, 1, 1}));
}

Tensor input(Graph& graph, const AttentionKey& key, Slot slot, int64_t heads, int64_t length,
             int64_t stride) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(slot)
                          .set_dim(extents(key, heads, length))
                          .set_stride(steps(key, length, stride))
                          .set_ragged_offset(offsets(graph, key, slot)));
}
void output(Graph& graph, const Tensor& tensor, const AttentionKey& key, Slot slot, int64_t heads,
            int64_t length, int64_t stride) {
  tensor->set_output(true)
      .set_uid(slot)
      .set_dim(extents(key, heads, length))
      .set_stride(steps(key, length, stride))
      .set_ragged_offset(offsets(graph, key, slot));
}

void describe_stats(Graph& graph, fe::graph::Tensor_attributes& stats, const AttentionKey& key) {
  const auto [sequence, head, row] = key.stats_steps;
  stats.set_uid(kStats)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({key.batch, key.heads, key.query_length, 1})
      .set_stride({sequence, head, row, 1})
      .set_ragged_offset(offsets(graph, key, kStats));
}

template <class Attributes>
void describe(Graph& graph, Attributes& attributes, const AttentionKey& key) {
  attributes.set_attn_scale(key.scale);
  if (key.documents()) {
    const Tensor lengths = graph.tensor(fe::graph::Tensor_attributes()
                                            .set_uid(kLengths)
                                            .set_data_type(fe::DataType_t::INT32)
                                            .set_dim({key.batch, 1, 1, 1})
                                            .set_stride({1, 1, 1, 1}));
    attributes.set_padding_mask(true).set_seq_len_q(lengths).set_seq_len_kv(lengths);
  }
  if (key.visibility != Visibility::causal) return;
  attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
  attributes.set_diagonal_band_right_bound(0);
}

void describe_forward(Graph& graph, const AttentionKey& key) {
  const Tensor q = input(graph, key, kQ, key.heads, key.query_length, key.strides[0]);
  const Tensor k = input(graph, key, kK, key.kv_heads, key.key_length, key.strides[1]);
  const Tensor v = input(graph, key, kV, key.kv_heads, key.key_length, key.strides[2]);
  fe::graph::SDPA_attributes attributes;
  attributes.set_name("attention").set_generate_stats(true);
  describe(graph, attributes, key);
  const auto [o, stats] = graph.sdpa(q, k, v, attributes);
  output(graph, o, key, kO, key.heads, key.query_length, key.strides[3]);
  describe_stats(graph, stats->set_output(true), key);
}

void describe_backward(Graph& graph, const AttentionKey& key) {
  const Tensor q = input(graph, key, kQ, key.heads, key.query_length, key.strides[0]);
  const Tensor k = input(graph, key, kK, key.kv_heads, key.key_length, key.strides[1]);
  const Tensor v = input(graph, key, kV, key.kv_heads, key.key_length, key.strides[2]);
  const Tensor o = input(graph, key, kO, key.heads, key.query_length, key.strides[3]);
  const Tensor d_o = input(graph, key, kDO, key.heads, key.query_length, key.strides[4]);
  fe::graph::Tensor_attributes stats_attributes;
  describe_stats(graph, stats_attributes, key);
  const Tensor stats = graph.tensor(stats_attributes);
  fe::graph::SDPA_backward_attributes attributes;
  attributes.set_name("attention gradient").set_deterministic_algorithm(key.deterministic);
  describe(graph, attributes, key);
  const auto [d_q, d_k, d_v] = graph.sdpa_backward(q, k, v, o, d_o, stats, attributes);
  output(graph, d_q, key, kDQ, key.heads, key.query_length, key.strides[5]);
  output(graph, d_k, key, kDK, key.kv_heads, key.key_length, key.strides[6]);
  output(graph, d_v, key, kDV, key.kv_heads, key.key_length, key.strides[7]);
}

// Null where cuDNN has no engine for it. Sets `bytes` to the work memory that it wants.
std::shared_ptr<Graph> build(cudnnHandle_t handle, const AttentionKey& key, int64_t& bytes) {
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

// Graphs take operands at multiples of 16 bytes; by rows, log_sum_exp has a float for each head.
bool aligned(const AttentionKey& piece, const AttentionKey& whole) {
  return !whole.documents() || piece == whole || piece.heads % 4 == 0;
}

Plan make_plan(Graphs& graphs, const AttentionKey& whole) {
  Plan plan{nullptr, whole};
  int64_t bytes = 0;
  while (true) {
    plan.graph = build(graphs.handle, plan.piece, bytes);
    if (!plan.graph || bytes <= kGpuAttentionBytes) break;
    const AttentionKey next = smaller_piece(plan.piece, bytes);
    if (next == plan.piece) break;
    plan.piece = next;
  }
  if (!plan.graph || bytes > most_workspace(whole) || !aligned(plan.piece, whole))
    return {nullptr, whole};
  if (bytes > kGpuWorkBytes) grow(graphs.workspace, static_cast<size_t>(bytes));
  if (whole.documents()) grow(graphs.ranges, Ranges::bytes(whole));
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

using Pointers = std::unordered_map<int64_t, void*>;  // by slot

// One call: the graph that serves it, if there is one, and the memory it works in.
class Call {
 public:
  Call(Stream& stream, const AttentionKey& key)
      : stream_(stream), graphs_(graphs_of(stream)), key_(key), plan_(plan_of(graphs_, key)) {}

  bool served() const { return plan_.graph != nullptr; }
  // Where log_sum_exp lies for the graph: in the call's own order, or by rows for documents.
  float* stats(const TensorView& log_sum_exp) const {
    return key_.documents() ? ranges().stats : elements_of(log_sum_exp);
  }
  void find_documents(const AttentionShape& shape) {
    if (!key_.documents()) return;
    const Ranges r = ranges();
    const auto& s = key_.strides;
    find_document_ranges(
        stream_, {.starts = reinterpret_cast<const int32_t*>(shape.starts.data),
                  .rows = key_.tokens,
                  .row_length = shape.query_length,
                  .capacity = r.capacity,
                  .strides = {s[0], s[1], s[2], s[3], key_.stats_steps[2], s[4], s[5], s[6], s[7]},
                  .lengths = r.lengths,
                  .offsets = r.offsets,
                  .offsets_step = static_cast<int64_t>(Ranges::offsets_step(r.capacity)),
                  .begins = r.begins});
  }
  // log_sum_exp of documents from the graph to the call's order, or back before the gradient.
  void turn_stats(const AttentionShape& shape, const TensorView& log_sum_exp, bool by_row) {
    if (!key_.documents()) return;
    float *own = elements_of(log_sum_exp), *rows = ranges().stats;
    turn_log_sum_exp(stream_, shape, by_row, by_row ? own : rows, by_row ? rows : own);
  }

  void run(std::initializer_list<Operand> operands) {
    std::byte* workspace =
        graphs_.workspace.bytes() > 0 ? graphs_.workspace.data() : work_memory(stream_);
    for (int64_t sequence = 0; sequence < key_.batch; sequence += plan_.piece.batch)
      for (int64_t head = 0; head < key_.kv_heads; head += plan_.piece.kv_heads) {
        // A new one for each call: the library adds entries that point into its own locals.
        Pointers pointers = pointers_of(operands, sequence, head);
        fe::error_t status = plan_.graph->execute(graphs_.handle, pointers, workspace);
        require(status.is_good(), ExitCode::device, "cuDNN, attention: {}", status.get_message());
      }
  }

 private:
  static Graphs& graphs_of(Stream& stream) {
    const auto make = [&] { return std::make_shared<Graphs>(stream.state().stream); };
    return stream.state().attached<Graphs>(Attachment::attention, make);
  }
  static const Plan& plan_of(Graphs& graphs, const AttentionKey& key) {
    const auto found = graphs.plans.find(key);
    if (found != graphs.plans.end()) return found->second;
    return graphs.plans.emplace(key, make_plan(graphs, key)).first->second;
  }
  static float* elements_of(const TensorView& view) { return reinterpret_cast<float*>(view.data); }
  Ranges ranges() const { return {key_, graphs_.ranges.data()}; }

  Pointers pointers_of(std::initializer_list<Operand> operands, int64_t sequence,
                       int64_t head) const {
    Pointers pointers;
    for (const Operand& o : operands) {
      const int64_t elements = sequence * o.sequence_step + head * o.head_step;
      pointers[o.slot] = o.data + static_cast<size_t>(elements) * o.element_bytes;
      if (key_.documents()) pointers[offsets_of(o.slot)] = ranges().offsets_in(o.slot);
    }
    if (key_.documents()) pointers[kLengths] = ranges().lengths;
    return pointers;
  }

  Stream& stream_;
  Graphs& graphs_;
  const AttentionKey& key_;
  const Plan& plan_;
};

// Steps over key heads: the query heads of one key head lie side by side.
struct HeadSteps {
  int64_t query, key;
};
HeadSteps head_steps(const AttentionShape& s) {
  return {s.heads / s.kv_heads * s.head_size, s.head_size};
}
Operand stats_operand(const AttentionKey& key, float* stats) {
  const int64_t group = key.heads / key.kv_heads;
  return {kStats, reinterpret_cast<std::byte*>(stats), key.stats_steps[0],
          group * key.stats_steps[1], sizeof(float)};
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
  if (!suits_fused(s, views)) return false;
  const HeadSteps step = head_steps(s);
  const AttentionKey key = attention_key(s, views, false);
  Call graph(stream, key);
  if (!graph.served()) return false;
  graph.find_documents(s);
  graph.run({operand(kQ, call.q, s.query_length, step.query),
             operand(kK, call.k, s.key_length, step.key),
             operand(kV, call.v, s.key_length, step.key),
             operand(kO, call.output, s.query_length, step.query),
             stats_operand(key, graph.stats(call.log_sum_exp))});
  graph.turn_stats(s, call.log_sum_exp, false);
  return true;
}

bool fused_attention_backward(Stream& stream, const AttentionBackward& call) {
  const AttentionShape& s = call.shape;
  const std::initializer_list<Matrix> views{call.q,        call.k,   call.v,   call.output,
                                            call.d_output, call.d_q, call.d_k, call.d_v};
  if (!suits_fused(s, views)) return false;
  const HeadSteps step = head_steps(s);
  const AttentionKey key = attention_key(s, views, true);
  Call graph(stream, key);
  if (!graph.served()) return false;
  graph.find_documents(s);
  graph.turn_stats(s, call.log_sum_exp, true);
  graph.run({operand(kQ, call.q, s.query_length, step.query),
             operand(kK, call.k, s.key_length, step.key),
             operand(kV, call.v, s.key_length, step.key),
             operand(kO, call.output, s.query_length, step.query),
             stats_operand(key, graph.stats(call.log_sum_exp)),
             operand(kDO, call.d_output, s.query_length, step.query),
             operand(kDQ, call.d_q, s.query_length, step.query),
             operand(kDK, call.d_k, s.key_length, step.key),
             operand(kDV, call.d_v, s.key_length, step.key)});
  return true;
}

}  // namespace trireme::inline TRIREME_BACKEND
