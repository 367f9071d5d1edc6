// Reads tokenizer.json: the model and the added tokens; the rest is in tokenizer_json_steps.
#include <algorithm>

#include "data/tokenizer_json_steps.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

void refuse_unless_empty(const JsonValue& value) {
  require(value.is_null() || value.raw() == "" || value.raw() == 0, ExitCode::bad_data,
          "{} is set to {}; only null is supported", value.place(), value.raw().dump());
}

BpeModel::Pair read_merge(const JsonValue& value) {
  if (value.raw().is_array()) {
    require(value.size() == 2, ExitCode::bad_data, "{} is not a pair", value.place());
    return {value.item(0).text(), value.item(1).text()};
  }
  const std::string& text = value.text();
  const size_t space = text.find(' ');
  require(space != std::string::npos && space == text.rfind(' ') && space > 0 &&
              space + 1 < text.size(),
          ExitCode::bad_data, "{}: \"{}\" is not two tokens and one space", value.place(), text);
  return {text.substr(0, space), text.substr(space + 1)};
}

std::shared_ptr<const BpeModel> read_model(const JsonValue& value, bool byte_level,
                                           const std::string& path) {
  const std::string type = value.at("type").text_or("BPE");
  require(type == "BPE", ExitCode::bad_data,
          "{}: a model of type \"{}\" is not supported: only BPE", value.place(), type);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    refuse_unless_empty(value.at(key));
  Vocabulary vocabulary(path);
  const JsonValue entries = value.at("vocab");
  require(entries.raw().is_object(), ExitCode::bad_data, "{} is not an object", entries.place());
  for (const auto& [text, id] : entries.raw().items())
    vocabulary.add(text, JsonValue(id, entries.place() + " \"" + text + "\"").number());
  const JsonValue list = value.at("merges");
  std::vector<BpeModel::Pair> merges;
  for (size_t i = 0; i < list.size(); ++i) merges.push_back(read_merge(list.item(i)));
  BpeRules rules{.byte_level = byte_level,
                 .ignore_merges = value.at("ignore_merges").flag_or(false),
                 .byte_fallback = value.at("byte_fallback").flag_or(false),
                 .fuse_unknown = value.at("fuse_unk").flag_or(false),
                 .unknown = value.at("unk_token").text_or("")};
  return std::make_shared<const BpeModel>(std::move(vocabulary), merges, std::move(rules));
}

AddedToken read_added(const JsonValue& value) {
  AddedToken token;
  token.content = value.at("content").text();
  require(!token.content.empty(), ExitCode::bad_data, "{} has no content", value.place());
  token.special = value.at("special").flag_or(false);
  token.single_word = value.at("single_word").flag_or(false);
  token.lstrip = value.at("lstrip").flag_or(false);
  token.rstrip = value.at("rstrip").flag_or(false);
  token.normalized = value.at("normalized").flag_or(!token.special);
  return token;
}

// A token of the vocabulary keeps its id; others follow behind the largest, in the order of the
// list. A file that says otherwise is read differently by different programs: refused.
std::vector<AddedToken> read_all_added(const JsonValue& list, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  int64_t next = vocabulary.count();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonValue value = list.item(i);
    AddedToken token = read_added(value);
    const int64_t said = value.at("id").number();
    const auto same = std::ranges::find(tokens, token.content, &AddedToken::content);
    require(same == tokens.end(), ExitCode::bad_data, "{}: \"{}\" is added twice", value.place(),
            token.content);
    const std::optional<int32_t> known = vocabulary.find(token.content);
    const int64_t id = known ? *known : next;
    require(id == said && id < Vocabulary::kMostIds, ExitCode::bad_data,
            "{}: token \"{}\" has id {}, by its place it is {}", value.place(), token.content, said,
            id);
    require(known || !vocabulary.has(id), ExitCode::bad_data,
            "{}: id {} of \"{}\" belongs to \"{}\"", value.place(), id, token.content,
            vocabulary.has(id) ? vocabulary.text(static_cast<int32_t>(id)) : "");
    next = std::max(next, id + 1);
    token.id = static_cast<int32_t>(id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

BpeParts read_tokenizer_json(const std::string& path) {
  nlohmann::json storage;
  const JsonValue file = JsonValue::read(path, storage);
  const std::string version = file.at("version").text_or("1.0");
  require(version == "1.0", ExitCode::bad_data, "{}: version \"{}\" is not supported: only 1.0",
          path, version);
  require(file.at("truncation").is_null(), ExitCode::bad_data,
          "{} is set: it would cut documents; set it to null", file.at("truncation").place());
  PreTokenizerParts pre = read_pre_tokenizer(file.at("pre_tokenizer"));
  BpeParts parts;
  parts.model = read_model(file.at("model"), pre.byte_level, path);
  parts.added = read_all_added(file.at("added_tokens"), parts.model->vocabulary());
  parts.normalizer = Normalizer(read_normalizer(file.at("normalizer")));
  parts.pre_tokenizer = PreTokenizer(std::move(pre.steps));
  parts.decoder = read_decoder(file.at("decoder"), pre.byte_level);
  DocumentMarks marks = read_post_processor(file.at("post_processor"), parts);
  parts.start_marks = std::move(marks.start);
  parts.end_marks = std::move(marks.end);
  return parts;
}

}  // namespace trireme
