// config.json in both directions: what each family means, what is refused by name, and what comes
// back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "trireme/base/error.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/convert/hf_config.hpp"
#include "trireme/convert/llmc.hpp"
#include "trireme/convert/tensor_map.hpp"
#include "trireme/io/json_text.hpp"
#include "trireme/model/parameter_table.hpp"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

HfModel read(const std::string& text, int64_t context = 0) {
  return read_hf_config(parse_json_text(text, "config.json"), "config.json", context);
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_data);
    return e.what();
  }
  return "";
}

void expect_refused(const std::string& text, const std::vector<std::string>& names) {
  const std::string found = refusal(text);
  for (const std::string& name : names)
    EXPECT_NE(found.find(name), std::string::npos) << text << "\n" << found;
}

ModelShape shape_of(const ModelSettings& model) {
  Settings settings = default_settings(model.family);
  settings.model = model;
  return model_shape(settings);
}

// Published configurations and their published counts.
TEST(HfConfig, PublishedModels) {
  const struct {
    const char* text;
    int64_t parameters;
  } kModels[] = {
      {R"({"model_type":"gpt2"})", 124439808},
      {R"({"model_type":"gpt2","n_embd":1600,"n_layer":48,"n_head":25})", 1557611200},
      {R"({"model_type":"llama","vocab_size":32000,"max_position_embeddings":4096})", 6738415616},
      {R"({"model_type":"llama","vocab_size":128256,"intermediate_size":14336,"num_key_value_heads":8,
           "rope_theta":500000.0})",
       8030261248},
      {R"({"model_type":"llama","vocab_size":128256,"hidden_size":2048,"intermediate_size":8192,
           "num_hidden_layers":16,"num_key_value_heads":8,"head_dim":64,"tie_word_embeddings":true})",
       1235814400},
      {R"({"model_type":"mistral","sliding_window":null})", 7241732096},
      {R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
           "num_attention_heads":14,"num_key_value_heads":2,"tie_word_embeddings":true,
           "use_sliding_window":false,"sliding_window":32768,"max_window_layers":21})",
       494032768},
      {R"({"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,
           "num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"tie_word_embeddings":true})",
       596049920},
  };
  for (const auto& model : kModels) {
    const HfModel hf = read(model.text);
    EXPECT_EQ(shape_of(hf.model).parameters(), model.parameters) << model.text;
    // Every parameter has one link, and the links' shapes are the table's.
    const ParameterTable table(shape_of(hf.model), {});
    EXPECT_EQ(hf_links(shape_of(hf.model)).size(), table.entries().size());
    for (const TensorLink& link : hf_links(shape_of(hf.model)))
      EXPECT_TRUE(table.contains(link.ours)) << link.ours;
  }
}

TEST(HfConfig, WhatIsRefusedIsNamed) {
  expect_refused(R"({"model_type":"opt"})", {"model_type = 'opt'"});
  expect_refused("[]", {"not a JSON object"});
  expect_refused(R"({"model_type":"gpt2","scale_attn_by_inverse_layer_idx":true,
                     "activation_function":"relu","n_embd":770})",
                 {"scale_attn_by_inverse_layer_idx", "activation_function = relu", "n_embd 770"});
  expect_refused(R"({"model_type":"gpt2","reorder_and_upcast_attn":true,"add_cross_attention":true,
                     "scale_attn_weights":false})",
                 {"reorder_and_upcast_attn", "add_cross_attention", "scale_attn_weights"});
  for (const char* type : {"linear", "dynamic", "yarn", "longrope"})
    expect_refused(fmt::format(R"({{"model_type":"llama","rope_scaling":{{"type":"{}"}}}})", type),
                   {"rope_scaling", type});
  expect_refused(R"({"model_type":"llama","rope_scaling":{"rope_type":"llama3","factor":8.0}})",
                 {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  expect_refused(R"({"model_type":"llama","rope_theta":1e4,"rope_parameters":{"rope_theta":5e5}})",
                 {"differ"});
  expect_refused(
      R"({"model_type":"llama","rope_parameters":{"full_attention":{"rope_theta":5e5}}})",
      {"differs between layers"});
  expect_refused(R"({"model_type":"mistral","max_position_embeddings":8192})",
                 {"sliding_window = 4096"});
  expect_refused(R"({"model_type":"qwen2","use_sliding_window":true,"sliding_window":512})",
                 {"sliding_window = 512"});
  expect_refused(R"({"model_type":"qwen3","layer_types":["sliding_attention"],"sliding_window":8})",
                 {"sliding_window = 8"});
  expect_refused(R"({"model_type":"llama","quantization_config":{"bits":4}})",
                 {"quantization_config"});
  expect_refused(R"({"model_type":"llama","num_attention_heads":32,"num_key_value_heads":5,
                     "head_dim":7,"hidden_size":-3,"rms_norm_eps":"x"})",
                 {"num_key_value_heads 5", "head_dim 7", "hidden_size = -3", "rms_norm_eps"});
  EXPECT_EQ(read(R"({"model_type":"mistral","max_position_embeddings":4096})").context, 4096);
  EXPECT_EQ(read(R"({"model_type":"mistral","sliding_window":100})", 100).context, 100);
}

// What is written is read back as the same model, with and without rope scaling.
TEST(HfConfig, RoundTrip) {
  for (const char* text :
       {R"({"model_type":"gpt2","n_inner":100,"tie_word_embeddings":false,"eos_token_id":7})",
        R"({"model_type":"llama","attention_bias":true,"mlp_bias":true,"eos_token_id":[1,2],
            "rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,
            "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192}})",
        R"({"model_type":"mistral","sliding_window":null,"head_dim":100})",
        R"({"model_type":"qwen2","rms_norm_eps":1e-6,"rope_theta":1000000.0})",
        R"({"model_type":"qwen3","attention_bias":true})"}) {
    const HfModel hf = read(text);
    const std::string type = hf.model_type;
    EXPECT_EQ(hf_model_type(hf.model, type), type);
    const Json written = hf_config(hf, FloatType::bf16);
    const HfModel again = read_hf_config(written, "again");
    EXPECT_EQ(again.model_type, type);
    EXPECT_EQ(again.context, hf.context);
    EXPECT_EQ(again.end_ids, hf.end_ids);
    EXPECT_EQ(again.type, FloatType::bf16);
    Settings a = default_settings(hf.model.family), b = a;
    a.model = hf.model;
    b.model = again.model;
    EXPECT_EQ(section_text(a, "model"), section_text(b, "model")) << text;
  }
}

TEST(HfConfig, WhatNoFamilyHasIsRefused) {
  ModelSettings model = read(R"({"model_type":"llama"})").model;
  model.output_bias = true;
  EXPECT_THROW(hf_model_type(model, ""), Error);
  model.qkv_bias = true;
  EXPECT_EQ(hf_model_type(model, ""), "llama");
  model.qk_norm = true;
  EXPECT_EQ(hf_model_type(model, ""), "qwen3");
  model.mlp_bias = true;
  EXPECT_THROW(hf_model_type(model, ""), Error);
  model = read(R"({"model_type":"gpt2"})").model;
  model.bias = false;
  EXPECT_THROW(hf_model_type(model, ""), Error);
}

TEST(Llmc, HeadersAreChecked) {
  LlmcFile llmc;
  llmc.model = read(R"({"model_type":"gpt2"})").model;
  llmc.padded_vocab = 50304;
  llmc.place();
  // What llm.c's gpt2_124M.bin and gpt2_124M_bf16.bin have.
  EXPECT_EQ(llmc.file_bytes, 1024 + 4 * int64_t{124475904});
  const auto parse = [&](std::string header, int64_t bytes) {
    return parse_llmc_header(std::as_bytes(std::span(header)), bytes, "file");
  };
  EXPECT_EQ(parse(llmc.header(), llmc.file_bytes).model.vocab, 50257);
  EXPECT_THROW(parse(llmc.header(), llmc.file_bytes - 1), Error);
  EXPECT_THROW(parse(llmc.header().substr(0, 1000), llmc.file_bytes), Error);
  for (size_t word = 0; word < 8; ++word) {
    std::string changed = llmc.header();
    const int32_t value = -1;
    std::memcpy(changed.data() + 4 * word, &value, 4);
    EXPECT_THROW(parse(changed, llmc.file_bytes), Error) << word;
  }
}

}  // namespace
}  // namespace trireme
