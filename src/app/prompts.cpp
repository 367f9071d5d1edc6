#include "app/prompts.hpp"

#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

namespace trireme::app {
namespace {

std::string prompt_of_json(const std::string& line, const std::string& key,
                           const std::string& place) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  require(json.is_object() && json.contains(key) && json[key].is_string(), ExitCode::bad_data,
          "{}: a JSON object with a text under \"{}\" is needed", place, key);
  return json[key];
}

std::vector<std::string> read_lines(std::istream& in, const std::string& name, bool jsonl,
                                    const std::string& key) {
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    prompts.push_back(jsonl ? prompt_of_json(line, key, fmt::format("{}:{}", name, number)) : line);
  }
  require(!in.bad(), ExitCode::no_input, "{}: cannot be read to its end", name);
  require(!prompts.empty(), ExitCode::bad_data, "{}: no prompt in it: one a line is needed", name);
  return prompts;
}

}  // namespace

std::vector<std::string> read_prompts(const Arguments& arguments) {
  require(!arguments.has("prompt") || !arguments.has("prompt-file"), ExitCode::usage,
          "--prompt and --prompt-file exclude each other");
  if (arguments.has("prompt")) {
    std::vector<std::string> prompts = arguments.all("prompt");
    require(!prompts.empty(), ExitCode::usage, "--prompt needs a text");
    return prompts;
  }
  if (!arguments.has("prompt-file")) return {""};
  const std::string name = arguments.one("prompt-file");
  const std::string key = arguments.optional("key").value_or("prompt");
  const bool jsonl = name.ends_with(".jsonl") || name.ends_with(".ndjson");
  if (name == "-") return read_lines(std::cin, "standard input", false, key);
  std::ifstream file(name, std::ios::binary);
  require(file.good(), ExitCode::no_input, "{}: no such file, or it cannot be read", name);
  return read_lines(file, name, jsonl, key);
}

std::vector<Prompt> encode_prompts(const std::vector<std::string>& texts,
                                   const Tokenizer& tokenizer, int64_t context) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < texts.size(); ++i) {
    Prompt prompt{i, {tokenizer.start_marks().begin(), tokenizer.start_marks().end()}};
    tokenizer.encode(texts[i], prompt.tokens);
    if (prompt.tokens.empty()) prompt.tokens.push_back(tokenizer.end_of_document());
    require(std::ssize(prompt.tokens) < context, ExitCode::bad_data,
            "prompt {} has {} tokens, and the context of this model is {} tokens, the new ones "
            "included: shorten it{}",
            i + 1, prompt.tokens.size(), context,
            context > 1 ? ", or set a longer --context where the model has one" : "");
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::string pack(const std::vector<Prompt>& prompts) {
  std::string bytes;
  for (const Prompt& prompt : prompts) {
    const auto count = static_cast<uint64_t>(prompt.tokens.size());
    bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
    bytes.append(reinterpret_cast<const char*>(prompt.tokens.data()), count * sizeof(int32_t));
  }
  return bytes;
}

std::vector<Prompt> unpack(const std::string& bytes) {
  std::vector<Prompt> prompts;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t count = 0;
    std::memcpy(&count, bytes.data() + at, sizeof(count));
    at += sizeof(count);
    Prompt prompt{prompts.size(), std::vector<int32_t>(count)};
    std::memcpy(prompt.tokens.data(), bytes.data() + at, count * sizeof(int32_t));
    at += count * sizeof(int32_t);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace trireme::app
