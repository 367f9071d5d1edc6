#include "trireme/model/parameter_table.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/checked.hpp"
#include "trireme/base/random.hpp"

namespace trireme {
namespace {

void check_sizes(const ModelShape& m, const GridShape& grid) {
  const int64_t tp = grid.tp;
  require(m.heads % tp == 0, ExitCode::bad_config,
          "grid.tp = {} does not divide model.heads = {}: choose a tp that divides the heads", tp,
          m.heads);
  require(m.kv_heads % tp == 0 || tp % m.kv_heads == 0, ExitCode::bad_config,
          "grid.tp = {} and model.kv_heads = {}: one must divide the other", tp, m.kv_heads);
  require(m.ffn % tp == 0, ExitCode::bad_config,
          "grid.tp = {} does not divide model.ffn = {}: choose a tp that divides the MLP width", tp,
          m.ffn);
}

// Declares the parameters of one rank in the order in which the backward pass finishes them.
class Declaration {
 public:
  Declaration(const ModelShape& m, const TableOptions& o, std::function<void(ParameterSpec)> add)
      : m_(m), o_(o), add_(std::move(add)) {}

  void head() {
    layer_ = m_.layers;
    norm("final_norm");
    if (!m_.tied) {
      matrix("head.weight", {m_.vocab, m_.hidden}, Split::vocab, 1, m_.init_std);
    } else if (o_.grid.pp > 1) {
      table(false);
    }
  }

  void block(int64_t layer) {
    layer_ = layer;
    const std::string at = fmt::format("layers.{}.", layer);
    const double std = m_.init_std;
    const double output_std = std / std::sqrt(2.0 * static_cast<double>(m_.layers));
    norm(at + "norm1");
    matrix(at + "attention.query.weight", {m_.query_width(), m_.hidden}, Split::even, m_.head_size,
           std);
    const bool packed = !kv_copied();
    matrix(at + "attention.key.weight", {m_.kv_width(), m_.hidden}, Split::heads, m_.head_size, std,
           packed);
    matrix(at + "attention.value.weight", {m_.kv_width(), m_.hidden}, Split::heads, m_.head_size,
           std, true);
    if (m_.has_qkv_bias()) {
      vector(at + "attention.query.bias", m_.query_width(), Split::even, m_.head_size);
      vector(at + "attention.key.bias", m_.kv_width(), Split::heads, m_.head_size, packed);
      vector(at + "attention.value.bias", m_.kv_width(), Split::heads, m_.head_size, true);
    }
    if (m_.qk_norm) {
      head_norm(at + "attention.query_norm");
      head_norm(at + "attention.key_norm");
    }
    matrix(at + "attention.output.weight", {m_.query_width(), m_.hidden}, Split::even, m_.head_size,
           output_std);
    if (m_.has_output_bias()) vector(at + "attention.output.bias", m_.hidden, Split::none, 1);
    norm(at + "norm2");
    if (m_.gated) matrix(at + "mlp.gate.weight", {m_.ffn, m_.hidden}, Split::even, 1, std);
    matrix(at + "mlp.up.weight", {m_.ffn, m_.hidden}, Split::even, 1, std, m_.gated);
    const bool biased = m_.has_mlp_bias();
    if (biased && m_.gated) vector(at + "mlp.gate.bias", m_.ffn, Split::even, 1);
    if (biased) vector(at + "mlp.up.bias", m_.ffn, Split::even, 1, m_.gated);
    matrix(at + "mlp.down.weight", {m_.ffn, m_.hidden}, Split::even, 1, output_std);
    if (biased) vector(at + "mlp.down.bias", m_.hidden, Split::none, 1);
  }

  void embedding() {
    layer_ = -1;
    table(true);
    if (m_.learned_positions)
      matrix("embedding.positions", {m_.max_sequence, m_.hidden}, Split::none, 1, m_.init_std);
  }

 private:
  bool kv_copied() const { return o_.grid.tp > m_.kv_heads; }

  void table(bool counts) {
    ParameterSpec spec = make("embedding.tokens", {m_.vocab, m_.hidden}, Split::vocab, 1);
    spec.initial = InitialValue::normal;
    spec.std = m_.init_std;
    spec.decays = true;
    if (m_.tied && o_.grid.pp > 1) spec.extra_sum = ExtraSum::tied;
    spec.counts = counts;
    add_(spec);
  }
  void norm(const std::string& name) {
    ParameterSpec gain = make(name + ".gain", {m_.hidden}, Split::none, 1);
    gain.initial = InitialValue::ones;
    add_(gain);
    if (m_.layer_norm && m_.bias) add_(make(name + ".bias", {m_.hidden}, Split::none, 1));
  }
  // One gain for all heads: every tp rank sees its heads' part of the gradient.
  void head_norm(const std::string& name) {
    ParameterSpec gain = make(name + ".gain", {m_.head_size}, Split::none, 1);
    gain.initial = InitialValue::ones;
    if (o_.grid.tp > 1) gain.extra_sum = ExtraSum::tp;
    add_(gain);
  }
  void vector(const std::string& name, int64_t size, Split split, int64_t unit,
              bool packed = false) {
    ParameterSpec spec = make(name, {size}, split, unit);
    spec.packed = packed;
    add_(spec);
  }
  void matrix(const std::string& name, Shape whole, Split split, int64_t unit, double std,
              bool packed = false) {
    ParameterSpec spec = make(name, whole, split, unit);
    spec.initial = InitialValue::normal;
    spec.std = std;
    spec.decays = true;
    spec.packed = packed;
    add_(spec);
  }
  ParameterSpec make(const std::string& name, Shape whole, Split split, int64_t unit) const {
    ParameterSpec spec;
    spec.name = name;
    spec.whole = whole;
    spec.split = split;
    spec.split_unit = unit;
    spec.layer = layer_;
    const int tp = o_.grid.tp;
    if (split == Split::none) {
      if (o_.sequence_parallel && tp > 1) spec.extra_sum = ExtraSum::tp;
      spec.counts = o_.here.tp == 0;
    }
    if (split == Split::heads && kv_copied()) {
      const int copies = tp / static_cast<int>(m_.kv_heads);
      spec.extra_sum = ExtraSum::kv_copies;
      spec.counts = o_.here.tp % copies == 0;
    }
    return spec;
  }

  const ModelShape& m_;
  const TableOptions& o_;
  std::function<void(ParameterSpec)> add_;
  int64_t layer_ = 0;
};

}  // namespace

int64_t vocab_rows(int64_t vocab, int tp) {
  constexpr int64_t kLarge = 4096, kMultiple = 128;
  return round_up(ceil_div(vocab, tp), vocab >= kLarge ? kMultiple : 1);
}

ParameterTable::ParameterTable(const ModelShape& model, const TableOptions& options)
    : model_(model), options_(options) {
  check_sizes(model, options.grid);
  const int pp = options.grid.pp, stage = options.here.pp;
  std::vector<LayerRange> ranges = layer_ranges(model.layers, pp, options.virtual_stages, stage);
  Declaration declaration(model, options, [this](ParameterSpec s) { declare(std::move(s)); });
  if (stage == pp - 1) declaration.head();
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range)
    for (int64_t layer = range->last - 1; layer >= range->first; --layer) declaration.block(layer);
  if (stage == 0) declaration.embedding();
  lay_out();
}

void ParameterTable::declare(ParameterSpec spec) {
  ParameterEntry entry;
  const int tp = options_.grid.tp, here = options_.here.tp;
  const int64_t extent = spec.whole[0];
  int64_t allocated = extent;
  entry.rows = extent;
  switch (spec.split) {
    case Split::none:
      break;
    case Split::even:
      allocated = entry.rows = extent / tp;
      entry.first_row = allocated * here;
      break;
    case Split::vocab:
      allocated = vocab_rows(extent, tp);
      entry.first_row = std::min(extent, allocated * here);
      entry.rows = std::min(allocated, extent - entry.first_row);
      break;
    case Split::heads: {
      const int64_t units = extent / spec.split_unit;
      const int64_t held = std::max<int64_t>(1, units / tp);
      allocated = entry.rows = held * spec.split_unit;
      entry.first_row = here * units / tp * spec.split_unit;
      break;
    }
  }
  entry.local = spec.whole;
  entry.local.extent[0] = allocated;
  entry.spec = std::move(spec);
  entries_.push_back(std::move(entry));
}

void ParameterTable::lay_out() {
  const int64_t shard = int64_t{options_.grid.dp} * options_.grid.cp * kShardAlignment;
  for (ParameterEntry& entry : entries_) {
    auto same = [&](const ParameterGroup& g) { return g.extra_sum == entry.spec.extra_sum; };
    auto found = std::find_if(groups_.begin(), groups_.end(), same);
    if (found == groups_.end()) {
      groups_.push_back({entry.spec.extra_sum, 0, {}});
      found = std::prev(groups_.end());
    }
    ParameterGroup& group = *found;
    const int64_t layer = entry.spec.layer;
    const bool full = !group.buckets.empty() && layer != group.buckets.back().last_layer &&
                      group.count - group.buckets.back().first >= options_.bucket_elements;
    if (group.buckets.empty() || full) {
      group.count = round_up(group.count, shard);
      if (full) group.buckets.back().count = group.count - group.buckets.back().first;
      group.buckets.push_back({group.count, 0, layer, layer});
    }
    if (!entry.spec.packed) group.count = round_up(group.count, kShardAlignment);
    entry.group = static_cast<int>(found - groups_.begin());
    entry.offset = group.count;
    group.count += entry.elements();
    group.buckets.back().last_layer = layer;
  }
  for (ParameterGroup& group : groups_) {
    group.count = round_up(group.count, shard);
    group.buckets.back().count = group.count - group.buckets.back().first;
    for (Bucket& bucket : group.buckets)
      if (bucket.first_layer > bucket.last_layer) std::swap(bucket.first_layer, bucket.last_layer);
  }
}

int ParameterTable::find(const std::string& name) const {
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].spec.name == name) return static_cast<int>(i);
  fail(ExitCode::internal, "no parameter named {} on this rank", name);
}

bool ParameterTable::contains(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const ParameterEntry& e) { return e.spec.name == name; });
}

int64_t ParameterTable::elements() const {
  int64_t sum = 0;
  for (const ParameterGroup& group : groups_) sum += group.count;
  return sum;
}

void ParameterTable::initial_values(const ParameterEntry& entry, uint64_t seed,
                                    std::span<float> out) const {
  require(static_cast<int64_t>(out.size()) == entry.real_elements(), ExitCode::internal,
          "{} elements given for {}", out.size(), entry.spec.name);
  if (entry.spec.initial != InitialValue::normal) {
    std::fill(out.begin(), out.end(), entry.spec.initial == InitialValue::ones ? 1.0f : 0.0f);
    return;
  }
  const uint64_t key = stream_key(seed, entry.spec.name);
  const uint64_t first = static_cast<uint64_t>(entry.first_row * entry.local.row_elements());
  const double std = entry.spec.std;
  const int64_t count = entry.real_elements();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] =
        static_cast<float>(std * normal_at(key, first + static_cast<uint64_t>(i)));
}

std::vector<GlobalSlice> slices_of(const ParameterEntry& entry, int64_t first, int64_t count,
                                   std::byte* data, DType dtype, const std::string& name) {
  const int64_t last = std::min(first + count, entry.real_elements());
  const int64_t width = entry.local.row_elements();
  std::vector<GlobalSlice> slices;
  auto add = [&](int64_t from, int64_t rows, int64_t columns) {
    if (rows == 0 || columns == 0) return;
    GlobalSlice slice{name, entry.spec.whole, entry.spec.whole, {}};
    const bool matrix = entry.spec.whole.dims == 2;
    slice.origin.extent[0] = entry.first_row + from / width;
    if (matrix) slice.origin.extent[1] = from % width;
    std::byte* at =
        data == nullptr ? nullptr : data + static_cast<size_t>(from - first) * size_of(dtype);
    slice.local = {at, matrix ? Shape{rows, columns} : Shape{rows}, dtype};
    slices.push_back(std::move(slice));
  };
  if (first >= last) return slices;
  const int64_t head_end = std::min(last, round_up(first, width));
  add(first, 1, head_end - first);
  const int64_t body_end = std::max(head_end, last / width * width);
  add(head_end, (body_end - head_end) / width, width);
  add(body_end, 1, last - body_end);
  return slices;
}

}  // namespace trireme
