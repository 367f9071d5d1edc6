#include "trireme/convert/tensor_map.hpp"

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::string layer_name(int64_t layer) {
  return fmt::format("layers.{}.", layer);
}

class Links {
 public:
  void add(const std::string& ours, const std::string& theirs, Shape whole) {
    links_.push_back({ours, theirs, whole, false, 0});
  }
  void add_transposed(const std::string& ours, const std::string& theirs, Shape whole) {
    links_.push_back({ours, theirs, whole, true, 0});
  }
  // Query, key and value out of one tensor of 3 x width; `end` is ".weight" or ".bias".
  void add_three(const std::string& at, const std::string& end, const std::string& theirs,
                 Shape whole, bool transposed) {
    const int64_t width = whole[transposed ? 1 : 0] / 3;
    int64_t first = 0;
    for (const char* part : {"query", "key", "value"}) {
      links_.push_back({at + "attention." + part + end, theirs, whole, transposed, first});
      first += width;
    }
  }
  std::vector<TensorLink> take() { return std::move(links_); }

 private:
  std::vector<TensorLink> links_;
};

std::vector<TensorLink> gpt2_links(const ModelShape& m) {
  Links l;
  const int64_t h = m.hidden, f = m.ffn;
  l.add("embedding.tokens", "transformer.wte.weight", {m.vocab, h});
  l.add("embedding.positions", "transformer.wpe.weight", {m.max_sequence, h});
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string at = layer_name(i), hf = fmt::format("transformer.h.{}.", i);
    l.add(at + "norm1.gain", hf + "ln_1.weight", {h});
    l.add(at + "norm1.bias", hf + "ln_1.bias", {h});
    l.add_three(at, ".weight", hf + "attn.c_attn.weight", {h, 3 * h}, true);
    l.add_three(at, ".bias", hf + "attn.c_attn.bias", {3 * h}, false);
    l.add(at + "attention.output.weight", hf + "attn.c_proj.weight", {h, h});
    l.add(at + "attention.output.bias", hf + "attn.c_proj.bias", {h});
    l.add(at + "norm2.gain", hf + "ln_2.weight", {h});
    l.add(at + "norm2.bias", hf + "ln_2.bias", {h});
    l.add_transposed(at + "mlp.up.weight", hf + "mlp.c_fc.weight", {h, f});
    l.add(at + "mlp.up.bias", hf + "mlp.c_fc.bias", {f});
    l.add(at + "mlp.down.weight", hf + "mlp.c_proj.weight", {f, h});
    l.add(at + "mlp.down.bias", hf + "mlp.c_proj.bias", {h});
  }
  l.add("final_norm.gain", "transformer.ln_f.weight", {h});
  l.add("final_norm.bias", "transformer.ln_f.bias", {h});
  if (!m.tied) l.add("head.weight", "lm_head.weight", {m.vocab, h});
  return l.take();
}

void add_llama_layer(const ModelShape& m, int64_t layer, Links& l) {
  const int64_t h = m.hidden, f = m.ffn, q = m.query_width(), kv = m.kv_width();
  const std::string at = layer_name(layer), hf = fmt::format("model.layers.{}.", layer);
  const std::string attention = hf + "self_attn.", ours = at + "attention.";
  l.add(at + "norm1.gain", hf + "input_layernorm.weight", {h});
  l.add(ours + "query.weight", attention + "q_proj.weight", {q, h});
  l.add(ours + "key.weight", attention + "k_proj.weight", {kv, h});
  l.add(ours + "value.weight", attention + "v_proj.weight", {kv, h});
  if (m.has_qkv_bias()) {
    l.add(ours + "query.bias", attention + "q_proj.bias", {q});
    l.add(ours + "key.bias", attention + "k_proj.bias", {kv});
    l.add(ours + "value.bias", attention + "v_proj.bias", {kv});
  }
  if (m.qk_norm) {
    l.add(ours + "query_norm.gain", attention + "q_norm.weight", {m.head_size});
    l.add(ours + "key_norm.gain", attention + "k_norm.weight", {m.head_size});
  }
  l.add_transposed(ours + "output.weight", attention + "o_proj.weight", {h, q});
  if (m.has_output_bias()) l.add(ours + "output.bias", attention + "o_proj.bias", {h});
  l.add(at + "norm2.gain", hf + "post_attention_layernorm.weight", {h});
  l.add(at + "mlp.gate.weight", hf + "mlp.gate_proj.weight", {f, h});
  l.add(at + "mlp.up.weight", hf + "mlp.up_proj.weight", {f, h});
  l.add_transposed(at + "mlp.down.weight", hf + "mlp.down_proj.weight", {h, f});
  if (!m.has_mlp_bias()) return;
  l.add(at + "mlp.gate.bias", hf + "mlp.gate_proj.bias", {f});
  l.add(at + "mlp.up.bias", hf + "mlp.up_proj.bias", {f});
  l.add(at + "mlp.down.bias", hf + "mlp.down_proj.bias", {h});
}

std::vector<TensorLink> llama_links(const ModelShape& m) {
  Links l;
  l.add("embedding.tokens", "model.embed_tokens.weight", {m.vocab, m.hidden});
  for (int64_t i = 0; i < m.layers; ++i) add_llama_layer(m, i, l);
  l.add("final_norm.gain", "model.norm.weight", {m.hidden});
  if (!m.tied) l.add("head.weight", "lm_head.weight", {m.vocab, m.hidden});
  return l.take();
}

bool is_buffer(const std::string& name) {
  const bool mask = name.starts_with("transformer.") &&
                    (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
  return mask || name.ends_with(".rotary_emb.inv_freq");
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t extent : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  return fmt::format("[{}]", text);
}

bool same_shape(const std::vector<int64_t>& a, const Shape& b) {
  bool same = static_cast<int>(a.size()) == b.dims;
  for (size_t d = 0; same && d < a.size(); ++d) same = a[d] == b.extent[d];
  return same;
}

// "transformer." or "model." in front of what lacks it.
std::string with_prefix(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) || name.starts_with("lm_head.") ? name : prefix + name;
}

// A tied head: the table's bits, or there instead of the table.
void settle_tied_head(ForeignModel& foreign, const std::string& table, const std::string& file) {
  const std::string head = "lm_head.weight";
  const ForeignTensor* h = foreign.find(head);
  const ForeignTensor* t = foreign.find(table);
  if (h == nullptr) return;
  if (t == nullptr) {
    foreign.rename([&](const std::string& name) { return name == head ? table : name; });
    return;
  }
  bool same = h->type.has_value() && h->dtype == t->dtype && h->shape == t->shape;
  int64_t elements = 1;
  for (const int64_t extent : t->shape) elements *= extent;
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::vector<std::byte> a, b;
  for (int64_t first = 0; same && first < elements; first += kPiece) {
    const auto bytes = static_cast<size_t>(std::min(kPiece, elements - first)) * size_of(*h->type);
    a.resize(bytes);
    b.resize(bytes);
    foreign.read(*h, first, a);
    foreign.read(*t, first, b);
    same = a == b;
  }
  require(
      same, ExitCode::bad_data,
      "{}: tie_word_embeddings is true, but lm_head.weight is not {}: set it to false to import "
      "both",
      file, table);
  foreign.remove([&](const std::string& name) { return name == head; });
}

}  // namespace

std::vector<TensorLink> hf_links(const ModelShape& model) {
  return model.family == Family::gpt2 ? gpt2_links(model) : llama_links(model);
}

std::vector<TensorLink> llmc_links(const ModelShape& m) {
  Links l;
  const int64_t h = m.hidden, f = m.ffn;
  l.add("embedding.tokens", "wte", {m.vocab, h});
  l.add("embedding.positions", "wpe", {m.max_sequence, h});
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string at = layer_name(i), c = fmt::format("h.{}.", i);
    l.add(at + "norm1.gain", c + "ln1w", {h});
    l.add(at + "norm1.bias", c + "ln1b", {h});
    l.add_three(at, ".weight", c + "qkvw", {3 * h, h}, false);
    l.add_three(at, ".bias", c + "qkvb", {3 * h}, false);
    l.add_transposed(at + "attention.output.weight", c + "attprojw", {h, h});
    l.add(at + "attention.output.bias", c + "attprojb", {h});
    l.add(at + "norm2.gain", c + "ln2w", {h});
    l.add(at + "norm2.bias", c + "ln2b", {h});
    l.add(at + "mlp.up.weight", c + "fcw", {f, h});
    l.add(at + "mlp.up.bias", c + "fcb", {f});
    l.add_transposed(at + "mlp.down.weight", c + "fcprojw", {h, f});
    l.add(at + "mlp.down.bias", c + "fcprojb", {h});
  }
  l.add("final_norm.gain", "lnfw", {h});
  l.add("final_norm.bias", "lnfb", {h});
  return l.take();
}

void match_tensors(ForeignModel& foreign, const std::vector<TensorLink>& links, bool tied,
                   const std::string& file) {
  const std::string table = links.front().theirs;
  const std::string prefix = table.substr(0, table.find('.') + 1);
  foreign.rename([&](const std::string& name) { return with_prefix(name, prefix); });
  foreign.remove(is_buffer);
  if (tied) settle_tied_head(foreign, table, file);

  std::map<std::string, const TensorLink*> wanted;
  for (const TensorLink& link : links) wanted[link.theirs] = &link;
  constexpr size_t kShown = 100;
  std::vector<std::string> faults;
  for (const auto& [name, link] : wanted) {
    const ForeignTensor* tensor = foreign.find(name);
    if (tensor == nullptr)
      faults.push_back(fmt::format("missing: {} {}", name, link->whole.text()));
    else if (!same_shape(tensor->shape, link->whole))
      faults.push_back(fmt::format("mis-shaped: {} is {}, it should be {}", name,
                                   text_of(tensor->shape), link->whole.text()));
    else if (!tensor->type)
      faults.push_back(fmt::format("{} is {}: only F32, BF16 and F16", name, tensor->dtype));
  }
  for (const ForeignTensor& tensor : foreign.tensors())
    if (!wanted.contains(tensor.name))
      faults.push_back(fmt::format("surplus: {} {}", tensor.name, text_of(tensor.shape)));
  std::string lines;
  for (size_t i = 0; i < std::min(faults.size(), kShown); ++i) lines += "\n  " + faults[i];
  if (faults.size() > kShown) lines += fmt::format("\n  and {} more", faults.size() - kShown);
  require(faults.empty(), ExitCode::bad_data, "{} does not hold the model of its config.json:{}",
          file, lines);
}

}  // namespace trireme
