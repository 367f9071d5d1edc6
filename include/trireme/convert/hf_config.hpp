// config.json of Hugging Face models, in both directions: GPT-2, Llama, Mistral, Qwen2, Qwen3.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/settings.hpp"
#include "trireme/io/float_type.hpp"

namespace trireme {

struct HfModel {
  std::string model_type;  // "gpt2", "llama", "mistral", "qwen2", "qwen3"
  ModelSettings model;     // sizes are resolved
  int64_t context = 0;     // longest sequence, in tokens; when writing, 0 leaves what is there
  std::optional<FloatType> type;  // that the weights are meant to have
  int64_t begin_id = -1;          // of a text; -1: none
  std::vector<int64_t> end_ids;
  std::vector<std::string> notes;  // what a user should know, one line each
};

// `context` above 0 takes the place of the longest sequence that the file allows. Throws
// Error(bad_data) that lists everything in it that Trireme's models cannot do, by name.
HfModel read_hf_config(const nlohmann::ordered_json& config, const std::string& file,
                       int64_t context = 0);

// The model type that can hold `model`, `wanted` where that can. Throws Error(bad_config) with what
// none of them has.
std::string hf_model_type(const ModelSettings& model, const std::string& wanted);

// config.json for transformers 4 and 5; keys of `base` that say nothing of the model stay.
nlohmann::ordered_json hf_config(const HfModel& model, FloatType type,
                                 nlohmann::ordered_json base = {});
nlohmann::ordered_json hf_generation_config(const HfModel& model);

}  // namespace trireme
