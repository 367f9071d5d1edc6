// The bytes tokenizer, and the choice of a tokenizer by name or path.
#include "trireme/data/tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include "data/json_value.hpp"
#include "data/sentencepiece_model.hpp"
#include "data/tokenizer_parts.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// The file that a directory's tokenizer is read from.
fs::path find_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"})
    if (fs::exists(folder / name)) return folder / name;
  std::vector<fs::path> ranks;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".tiktoken") ranks.push_back(entry.path());
  require(ranks.size() == 1, ExitCode::no_input,
          "{}: no tokenizer in this directory: one of tokenizer.json, vocab.json, tokenizer.model "
          "or exactly one .tiktoken file is needed",
          folder.string());
  return ranks[0];
}

// eos_token of the tokenizer_config.json beside the file; empty where there is none.
std::string configured_end(const fs::path& file) {
  const fs::path path = file.parent_path() / "tokenizer_config.json";
  if (!fs::exists(path)) return "";
  nlohmann::json storage;
  const JsonValue config = JsonValue::read(path.string(), storage);
  const JsonValue end = config.at("eos_token");
  return end.raw().is_object() ? end.at("content").text() : end.text_or("");
}

// GPT-2's pair of files does not say how text is cut: other families ship such a pair too.
void check_family(const fs::path& file) {
  const fs::path path = file.parent_path() / "tokenizer_config.json";
  if (!fs::exists(path)) return;
  nlohmann::json storage;
  const JsonValue name = JsonValue::read(path.string(), storage).at("tokenizer_class");
  const std::string family = name.text_or("GPT2Tokenizer");
  require(family.starts_with("GPT2"), ExitCode::bad_data,
          "{}: {} cannot be read from vocab.json and merges.txt alone: its tokenizer.json is "
          "needed",
          name.place(), family);
}

std::optional<int32_t> find_token(const BpeParts& parts, const std::string& text) {
  const auto added = std::ranges::find(parts.added, text, &AddedToken::content);
  if (added != parts.added.end()) return added->id;
  return parts.model->vocabulary().find(text);
}

std::optional<int32_t> find_end(const BpeParts& parts, const fs::path& file,
                                const TokenizerOptions& options) {
  std::string named = options.end_of_document;
  if (named.empty()) named = configured_end(file);
  if (!named.empty()) {
    const std::optional<int32_t> id = find_token(parts, named);
    require(id.has_value(), ExitCode::bad_data, "{}: no token \"{}\", which is to end documents",
            file.string(), named);
    return id;
  }
  for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const std::optional<int32_t> id = find_token(parts, usual)) return id;
  return std::nullopt;
}

BpeParts read_parts(const fs::path& file) {
  if (file.extension() != ".json") return read_tiktoken(file.string());
  if (file.filename() != "vocab.json") return read_tokenizer_json(file.string());
  check_family(file);
  return read_gpt2_files(file.string(), (file.parent_path() / "merges.txt").string());
}

}  // namespace

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  ids.resize(before + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[before + i] = static_cast<unsigned char>(text[i]);
}

void ByteTokenizer::decode(std::span<const int32_t> ids, std::string& text) const {
  for (int32_t id : ids) {
    require(id >= 0 && id <= kEndOfDocument, ExitCode::bad_data,
            "the bytes tokenizer has no id {}: ids are 0 to {}", id, kEndOfDocument);
    if (id < kEndOfDocument) text.push_back(static_cast<char>(id));
  }
}

std::unique_ptr<Tokenizer> ByteTokenizer::clone() const {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path,
                                          const TokenizerOptions& options) {
  if (name_or_path == "bytes") return std::make_unique<ByteTokenizer>();
  const fs::path path(name_or_path);
  require(fs::exists(path), ExitCode::usage,
          "unknown tokenizer \"{}\": neither bytes nor a file or directory", name_or_path);
  const fs::path file = fs::is_directory(path) ? find_in(path) : path;
  const bool ranks = file.extension() == ".tiktoken" ||
                     (file.extension() != ".json" && looks_like_tiktoken(file.string()));
  if (!ranks && file.extension() != ".json") return open_sentencepiece(file.string(), options);
  BpeParts parts = read_parts(file);
  parts.end_of_document = find_end(parts, file, options);
  return std::make_unique<BpeTokenizer>(std::move(parts),
                                        options.special == TokenizerOptions::Special::text);
}

}  // namespace trireme
