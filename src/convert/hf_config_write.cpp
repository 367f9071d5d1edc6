// From the sections of a deck to config.json.
#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/convert/hf_config.hpp"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

// Every local directory should name a version; any will do.
constexpr const char* kTransformersVersion = "4.48.2";

const char* architecture(const std::string& model_type) {
  if (model_type == "gpt2") return "GPT2LMHeadModel";
  if (model_type == "mistral") return "MistralForCausalLM";
  if (model_type == "qwen2") return "Qwen2ForCausalLM";
  if (model_type == "qwen3") return "Qwen3ForCausalLM";
  return "LlamaForCausalLM";
}

void write_ids(const HfModel& hf, Json& config) {
  config["bos_token_id"] = hf.begin_id < 0 ? Json() : Json(hf.begin_id);
  config["eos_token_id"] = hf.end_ids.empty()       ? Json()
                           : hf.end_ids.size() == 1 ? Json(hf.end_ids[0])
                                                    : Json(hf.end_ids);
}

void write_gpt2(const ModelSettings& m, Json& config) {
  config["vocab_size"] = m.vocab;
  config["n_positions"] = m.positions;
  config["n_embd"] = m.hidden;
  config["n_layer"] = m.layers;
  config["n_head"] = m.heads;
  config["n_inner"] = m.ffn == 4 * m.hidden ? Json() : Json(m.ffn);
  config["activation_function"] = "gelu_new";
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    if (!config.contains(key)) config[key] = m.dropout;
  config["layer_norm_epsilon"] = m.norm_epsilon;
}

// The keys of transformers 4, and its successor's.
void write_rope(const ModelSettings& m, Json& config) {
  Json rope = {{"rope_type", "default"}};
  if (m.rope_factor > 0)
    rope = {{"rope_type", "llama3"},
            {"factor", m.rope_factor},
            {"low_freq_factor", m.rope_low_frequency},
            {"high_freq_factor", m.rope_high_frequency},
            {"original_max_position_embeddings", m.rope_original_length}};
  config["rope_theta"] = m.rope_base;
  config["rope_scaling"] = m.rope_factor > 0 ? rope : Json();
  rope["rope_theta"] = m.rope_base;
  config["rope_parameters"] = rope;
}

bool windows(const Json& layer_types) {
  return std::any_of(layer_types.begin(), layer_types.end(),
                     [](const Json& kind) { return kind != "full_attention"; });
}

void write_llama(const HfModel& hf, Json& config) {
  const ModelSettings& m = hf.model;
  config["vocab_size"] = m.vocab;
  config["hidden_size"] = m.hidden;
  config["intermediate_size"] = m.ffn;
  config["num_hidden_layers"] = m.layers;
  config["num_attention_heads"] = m.heads;
  config["num_key_value_heads"] = m.kv_heads;
  config["head_dim"] = m.head_size;
  config["hidden_act"] = "silu";
  if (hf.context > 0) config["max_position_embeddings"] = hf.context;
  config["rms_norm_eps"] = m.norm_epsilon;
  write_rope(m, config);
  if (hf.model_type == "llama" || hf.model_type == "qwen3")
    config["attention_bias"] = m.output_bias;
  if (hf.model_type == "llama") config["mlp_bias"] = m.mlp_bias;
  const auto keep_or = [&](const char* key, const Json& value) {
    if (!config.contains(key)) config[key] = value;
  };
  // A window of the original stays: its sequences were shorter.
  if (hf.model_type != "llama") keep_or("sliding_window", Json());
  if (hf.model_type.starts_with("qwen")) keep_or("use_sliding_window", false);
  if (config.contains("layer_types") && !windows(config["layer_types"]))
    config.erase("layer_types");
  keep_or("attention_dropout", 0.0);
}

}  // namespace

std::string hf_model_type(const ModelSettings& m, const std::string& wanted) {
  std::string faults;
  const auto refuse_if = [&](bool bad, const char* fault) {
    if (bad) faults += fmt::format("\n  {}", fault);
  };
  const bool qkv = m.bias || m.qkv_bias, output = m.bias || m.output_bias;
  const bool mlp = m.bias || m.mlp_bias;
  std::string type = "gpt2";
  if (m.family == Family::gpt2) {
    refuse_if(!m.bias, "model.bias = false: GPT-2 has biases everywhere");
    refuse_if(m.kv_heads != m.heads, "model.kv_heads: GPT-2 has as many as heads");
    refuse_if(m.head_size * m.heads != m.hidden, "model.head_size: GPT-2's is hidden / heads");
  } else {
    type = m.qk_norm ? "qwen3" : qkv && !output ? "qwen2" : "llama";
    if (wanted == "mistral" && !m.qk_norm && !qkv && !output && !mlp) type = wanted;
    refuse_if(m.qk_norm && qkv != output,
              "model.qk_norm with model.qkv_bias: Qwen3 has biases on all of q, k, v and output");
    refuse_if(output && !qkv, "model.output_bias without model.qkv_bias");
    refuse_if(mlp && type != "llama", "model.mlp_bias: only Llama has it, without model.qk_norm");
  }
  require(faults.empty(), ExitCode::bad_config, "no Hugging Face model has this:{}", faults);
  require(wanted.empty() || wanted == type, ExitCode::bad_config,
          "the model is a {}, it cannot be written as {}", type, wanted);
  return type;
}

Json hf_config(const HfModel& hf, FloatType type, Json base) {
  Json config = base.is_object() ? std::move(base) : Json::object();
  config["architectures"] = {architecture(hf.model_type)};
  config["model_type"] = hf.model_type;
  if (hf.model_type == "gpt2") {
    write_gpt2(hf.model, config);
  } else {
    write_llama(hf, config);
  }
  config["initializer_range"] = hf.model.init_std;
  config["tie_word_embeddings"] = hf.model.tied;
  if (!config.contains("eos_token_id") || !config.contains("bos_token_id")) write_ids(hf, config);
  config.erase("dtype");
  config["torch_dtype"] = torch_name(type);
  if (!config.contains("transformers_version"))
    config["transformers_version"] = kTransformersVersion;
  return config;
}

Json hf_generation_config(const HfModel& hf) {
  Json config = {{"_from_model_config", true}};
  write_ids(hf, config);
  config["transformers_version"] = kTransformersVersion;
  return config;
}

}  // namespace trireme
