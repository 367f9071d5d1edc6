// From config.json to the sections of a deck.
#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/convert/hf_config.hpp"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

// What a class of transformers takes where its config.json is silent.
struct Defaults {
  const char* model_type;
  int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_size, context;  // 0: derived
};
constexpr Defaults kDefaults[] = {
    {"llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048},
    {"mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072},
    {"qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768},
    {"qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768},
};

constexpr int64_t kMostSize = int64_t{1} << 26;

// Typed access that collects every fault.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  bool is_null(const char* key) const { return json_.contains(key) && json_[key].is_null(); }
  const Json& at(const char* key) const { return json_[key]; }
  void add(const std::string& fault) { faults_.push_back(fault); }
  void refuse_if(bool bad, const std::string& fault) {
    if (bad) add(fault);
  }

  int64_t size(const char* key, int64_t otherwise, int64_t most = kMostSize) {
    if (!has(key)) return otherwise;
    const Json& value = json_[key];
    if (value.is_number_integer() && value >= 1 && value <= most) return value;
    add(fmt::format("{} = {}: a whole number from 1 to {} is needed", key, shown(value), most));
    return std::max<int64_t>(otherwise, 1);
  }
  static std::optional<double> number_in(const Json& json, const char* key) {
    if (!json.contains(key) || !json[key].is_number()) return std::nullopt;
    return json[key].get<double>();
  }
  double number(const char* key, double otherwise, double low, double high) {
    if (!has(key)) return otherwise;
    const auto value = number_in(json_, key);
    if (value && *value >= low && *value <= high) return *value;
    add(fmt::format("{} = {}: a number from {} to {} is needed", key, shown(json_[key]), low,
                    high));
    return otherwise;
  }
  bool flag(const char* key, bool otherwise) {
    if (!has(key)) return otherwise;
    if (json_[key].is_boolean()) return json_[key];
    add(fmt::format("{} = {}: true or false is needed", key, shown(json_[key])));
    return otherwise;
  }
  std::string text(const char* key, const std::string& otherwise) {
    if (!has(key)) return otherwise;
    if (json_[key].is_string()) return json_[key];
    add(fmt::format("{} = {}: text is needed", key, shown(json_[key])));
    return otherwise;
  }
  // An id, or the first ids of a list.
  std::vector<int64_t> ids(const char* key, int64_t vocab) {
    std::vector<int64_t> found;
    if (!has(key)) return found;
    const Json list = json_[key].is_array() ? json_[key] : Json::array({json_[key]});
    for (const Json& id : list)
      if (id.is_number_integer() && id >= 0 && id < vocab) found.push_back(id);
    return found;
  }
  static std::string shown(const Json& value) {
    constexpr size_t kShown = 60;
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
  }
  void throw_any() const {
    std::string lines;
    for (const std::string& fault : faults_) lines += "\n  " + fault;
    require(faults_.empty(), ExitCode::bad_data, "{} describes what Trireme cannot do:{}", file_,
            lines);
  }

 private:
  const Json& json_;
  std::string file_;
  std::vector<std::string> faults_;
};

void read_common(ConfigReader& c, HfModel& hf) {
  c.refuse_if(c.has("quantization_config"), "quantization_config: weights are quantized");
  c.refuse_if(c.has("auto_map"), "auto_map: the model is code of its own");
  hf.model.init_std = c.number("initializer_range", 0.02, 0, 10);
  const std::string type = c.text("dtype", c.text("torch_dtype", ""));
  hf.type = torch_type_of(type);
  hf.end_ids = c.ids("eos_token_id", hf.model.vocab);
  const std::vector<int64_t> begin = c.ids("bos_token_id", hf.model.vocab);
  if (!begin.empty()) hf.begin_id = begin.front();
}

void read_dropout(ConfigReader& c, HfModel& hf, std::initializer_list<const char*> keys,
                  double otherwise) {
  std::vector<double> values;
  for (const char* key : keys) values.push_back(c.number(key, otherwise, 0, 0.999));
  const bool same =
      std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
  if (same && values.size() > 1) {
    hf.model.dropout = values[0];
  } else if (!same || values[0] > 0) {
    hf.notes.push_back(
        fmt::format("the model's dropout is not one for all places (embeddings, attention, "
                    "branches): the deck has model.dropout = 0"));
  }
}

void read_gpt2(ConfigReader& c, HfModel& hf) {
  ModelSettings& m = hf.model;
  m.family = Family::gpt2;
  m.vocab = c.size("vocab_size", 50257, 2147483647);
  m.hidden = c.size("n_embd", 768);
  m.layers = c.size("n_layer", 12, 1 << 16);
  m.heads = m.kv_heads = c.size("n_head", 12, 4096);
  m.ffn = c.size("n_inner", 4 * m.hidden);
  hf.context = m.positions = c.size("n_positions", 1024);
  m.norm_epsilon = c.number("layer_norm_epsilon", 1e-5, 1e-30, 1);
  m.tied = c.flag("tie_word_embeddings", true);
  m.bias = true;
  c.refuse_if(m.hidden % m.heads != 0,
              fmt::format("n_embd {} is not a multiple of n_head {}", m.hidden, m.heads));
  m.head_size = m.hidden / m.heads;
  const std::string activation = c.text("activation_function", "gelu_new");
  c.refuse_if(activation != "gelu_new" && activation != "gelu_pytorch_tanh",
              fmt::format("activation_function = {}: only gelu_new", activation));
  c.refuse_if(!c.flag("scale_attn_weights", true), "scale_attn_weights = false");
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"})
    c.refuse_if(c.flag(key, false), fmt::format("{} = true", key));
  read_dropout(c, hf, {"resid_pdrop", "embd_pdrop", "attn_pdrop"}, 0.1);
}

// One of the dictionaries that describe rotary positions.
void read_rope_scaling(ConfigReader& c, const char* key, HfModel& hf) {
  const Json& rope = c.at(key);
  if (!rope.is_object()) return c.add(fmt::format("{} is no object", key));
  if (std::any_of(rope.begin(), rope.end(), [](const Json& v) { return v.is_object(); }))
    return c.add(fmt::format("{} differs between layers", key));
  const Json kind = rope.contains("rope_type") ? rope["rope_type"]
                    : rope.contains("type")    ? rope["type"]
                                               : Json("default");
  const auto partial = ConfigReader::number_in(rope, "partial_rotary_factor");
  c.refuse_if(partial && *partial != 1, fmt::format("{}: partial_rotary_factor is not 1", key));
  if (kind == "default") return;
  if (kind != "llama3")
    return c.add(
        fmt::format("{}: rope_type = {}: only default and llama3", key, ConfigReader::shown(kind)));
  const auto value = [&](const char* name, double low) {
    const auto number = ConfigReader::number_in(rope, name);
    const bool good = number && *number >= low && *number <= 1e9;
    c.refuse_if(!good, fmt::format("{}: {} is missing or out of range", key, name));
    return good ? *number : low;
  };
  hf.model.rope_factor = value("factor", 1);
  hf.model.rope_low_frequency = value("low_freq_factor", 1e-6);
  hf.model.rope_high_frequency = value("high_freq_factor", 1e-6);
  hf.model.rope_original_length =
      static_cast<int64_t>(value("original_max_position_embeddings", 1));
  c.refuse_if(hf.model.rope_low_frequency >= hf.model.rope_high_frequency,
              fmt::format("{}: low_freq_factor is not below high_freq_factor", key));
}

void read_rope(ConfigReader& c, HfModel& hf) {
  double theta = c.number("rope_theta", 10000, 1, 1e12);
  const bool old_key = c.has("rope_theta");
  if (c.has("rope_scaling")) read_rope_scaling(c, "rope_scaling", hf);
  if (c.has("rope_parameters")) {
    const double factor = std::exchange(hf.model.rope_factor, 0);
    read_rope_scaling(c, "rope_parameters", hf);
    const Json& rope = c.at("rope_parameters");
    std::optional<double> number;
    if (rope.is_object()) number = ConfigReader::number_in(rope, "rope_theta");
    const double named = number.value_or(theta);
    c.refuse_if(old_key && named != theta, "rope_theta and rope_parameters.rope_theta differ");
    c.refuse_if(c.has("rope_scaling") && factor != hf.model.rope_factor,
                "rope_scaling and rope_parameters differ");
    theta = named;
    c.refuse_if(!(theta > 1 && theta <= 1e12), "rope_parameters.rope_theta is out of range");
  }
  hf.model.rope_base = theta;
}

// Attention that sees only the last tokens is refused, unless the window holds every sequence.
void read_window(ConfigReader& c, HfModel& hf) {
  bool windowed = hf.model_type == "mistral";
  if (hf.model_type.starts_with("qwen")) windowed = c.flag("use_sliding_window", false);
  if (c.has("layer_types")) {
    const Json& kinds = c.at("layer_types");
    windowed = kinds.is_array() && std::any_of(kinds.begin(), kinds.end(), [](const Json& kind) {
                 return kind != "full_attention";
               });
    for (const Json& kind : kinds)
      c.refuse_if(kind != "full_attention" && kind != "sliding_attention",
                  fmt::format("layer_types has {}", ConfigReader::shown(kind)));
  }
  if (!windowed || c.is_null("sliding_window")) return;
  const int64_t window = c.size("sliding_window", 4096);
  c.refuse_if(window < hf.context,
              fmt::format("sliding_window = {}: a token would see that many of the {} of a "
                          "sequence; --context {} converts it for shorter sequences, where the "
                          "window changes nothing",
                          window, hf.context, window));
}

void read_llama(ConfigReader& c, HfModel& hf, const Defaults& d) {
  ModelSettings& m = hf.model;
  m.family = Family::llama;
  m.vocab = c.size("vocab_size", d.vocab, 2147483647);
  m.hidden = c.size("hidden_size", d.hidden);
  m.ffn = c.size("intermediate_size", d.ffn);
  m.layers = c.size("num_hidden_layers", d.layers, 1 << 16);
  m.heads = c.size("num_attention_heads", d.heads, 4096);
  m.kv_heads = c.size("num_key_value_heads", d.kv_heads == 0 ? m.heads : d.kv_heads, 4096);
  c.refuse_if(m.heads % m.kv_heads != 0,
              fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                          m.heads, m.kv_heads));
  const int64_t usual = d.head_size == 0 ? m.hidden / m.heads : d.head_size;
  c.refuse_if(
      d.head_size == 0 && !c.has("head_dim") && m.hidden % m.heads != 0,
      fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", m.hidden, m.heads));
  m.head_size = c.size("head_dim", usual, 4096);
  c.refuse_if(m.head_size % 2 != 0, fmt::format("head_dim {} is odd", m.head_size));
  m.norm_epsilon = c.number("rms_norm_eps", 1e-6, 1e-30, 1);
  m.tied = c.flag("tie_word_embeddings", false);
  m.bias = false;
  const bool attention_bias = c.flag("attention_bias", false);
  c.refuse_if(attention_bias && (hf.model_type == "mistral" || hf.model_type == "qwen2"),
              "attention_bias = true, which " + hf.model_type + " does not have");
  m.output_bias = attention_bias;
  m.qkv_bias = attention_bias || hf.model_type == "qwen2";
  m.mlp_bias = c.flag("mlp_bias", false);
  c.refuse_if(m.mlp_bias && hf.model_type != "llama",
              "mlp_bias = true, which " + hf.model_type + " does not have");
  m.qk_norm = hf.model_type == "qwen3";
  const std::string activation = c.text("hidden_act", "silu");
  c.refuse_if(activation != "silu" && activation != "swish",
              fmt::format("hidden_act = {}: only silu", activation));
  hf.context = c.size("max_position_embeddings", d.context);
  read_dropout(c, hf, {"attention_dropout"}, 0);
  read_rope(c, hf);
}

}  // namespace

HfModel read_hf_config(const Json& config, const std::string& file, int64_t context) {
  require(config.is_object(), ExitCode::bad_data, "{} is not a JSON object", file);
  ConfigReader c(config, file);
  HfModel hf;
  hf.model_type = c.text("model_type", "");
  const auto* defaults =
      std::find_if(std::begin(kDefaults), std::end(kDefaults),
                   [&](const Defaults& d) { return hf.model_type == d.model_type; });
  const bool llama = defaults != std::end(kDefaults);
  require(llama || hf.model_type == "gpt2", ExitCode::bad_data,
          "{}: model_type = '{}' is not one of gpt2, llama, mistral, qwen2, qwen3", file,
          hf.model_type.substr(0, 60));
  if (llama) {
    read_llama(c, hf, *defaults);
  } else {
    read_gpt2(c, hf);
  }
  c.refuse_if(context > hf.context,
              fmt::format("--context {} is more than the model's {}", context, hf.context));
  if (context > 0) hf.context = std::min(context, hf.context);
  if (llama) read_window(c, hf);
  read_common(c, hf);
  c.throw_any();
  return hf;
}

}  // namespace trireme
