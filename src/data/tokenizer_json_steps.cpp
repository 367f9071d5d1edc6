#include "data/tokenizer_json_steps.hpp"

#include <algorithm>

#include "data/unicode_normal.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

[[noreturn]] void refuse(const JsonValue& value, std::string_view what) {
  fail(ExitCode::bad_data, "{}: \"{}\" is not supported", value.place(), what);
}

std::string type_of(const JsonValue& value) {
  return value.at("type").text();
}

// {"String": text} or {"Regex": pattern}.
Regex read_pattern(const JsonValue& value) {
  const JsonValue literal = value.at("String");
  if (!literal.is_null()) {
    require(!literal.text().empty(), ExitCode::bad_data, "{} is empty", literal.place());
    return Regex::literal(literal.text());
  }
  const JsonValue pattern = value.at("Regex");
  try {
    return Regex(pattern.text());
  } catch (const Error& e) {
    fail(ExitCode::bad_data, "{}: {}", pattern.place(), e.what());
  }
}

SplitBehavior read_behavior(const JsonValue& value) {
  const std::string& name = value.text();
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  refuse(value, name);
}

MetaspaceStep read_metaspace(const JsonValue& value) {
  MetaspaceStep step;
  step.mark = value.at("replacement").text_or("\u2581");
  require(!step.mark.empty(), ExitCode::bad_data, "{}: the replacement is empty", value.place());
  const bool prefix = value.at("add_prefix_space").flag_or(true);
  const std::string scheme = value.at("prepend_scheme").text_or(prefix ? "always" : "never");
  if (scheme == "never") {
    step.prepend = MetaspaceStep::Prepend::never;
  } else if (scheme == "first") {
    step.prepend = MetaspaceStep::Prepend::first;
  } else if (scheme != "always") {
    refuse(value.at("prepend_scheme"), scheme);
  }
  step.split = value.at("split").flag_or(true);
  return step;
}

void add_byte_level(const JsonValue& value, PreTokenizerParts& parts) {
  if (value.at("add_prefix_space").flag_or(true)) parts.steps.push_back(PrefixSpaceStep{});
  if (value.at("use_regex").flag_or(true)) parts.steps.push_back(SplitStep{Regex(kGpt2Pattern)});
  parts.byte_level = true;
}

void add_pre_tokenizer(const JsonValue& value, PreTokenizerParts& parts) {
  const std::string type = type_of(value);
  require(!parts.byte_level, ExitCode::bad_data, "{}: {} behind ByteLevel is not supported",
          value.place(), type);
  if (type == "Sequence") {
    const JsonValue list = value.at("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) add_pre_tokenizer(list.item(i), parts);
  } else if (type == "ByteLevel") {
    add_byte_level(value, parts);
  } else if (type == "Split") {
    SplitStep step{read_pattern(value.at("pattern")), read_behavior(value.at("behavior")),
                   value.at("invert").flag_or(false)};
    parts.steps.push_back(std::move(step));
  } else if (type == "Digits") {
    const bool each = value.at("individual_digits").flag_or(false);
    parts.steps.push_back(SplitStep{Regex(each ? "\\p{N}" : "\\p{N}+")});
  } else if (type == "Punctuation") {
    parts.steps.push_back(
        SplitStep{Regex(R"([!-/:-@\[-`{-~\p{P}])"), read_behavior(value.at("behavior"))});
  } else if (type == "Metaspace") {
    parts.steps.push_back(read_metaspace(value));
  } else {
    refuse(value, type);
  }
}

void add_normalizer(const JsonValue& value, std::vector<NormalizerStep>& steps) {
  const std::string type = type_of(value);
  if (type == "Sequence") {
    const JsonValue list = value.at("normalizers");
    for (size_t i = 0; i < list.size(); ++i) add_normalizer(list.item(i), steps);
  } else if (type == "Prepend") {
    steps.push_back(PrependText{value.at("prepend").text()});
  } else if (type == "Replace") {
    steps.push_back(ReplaceText{read_pattern(value.at("pattern")), value.at("content").text()});
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    check_unicode_normalize(type);
    steps.push_back(UnicodeForm{type});
  } else {
    refuse(value, type);
  }
}

void add_decoder(const JsonValue& value, Decoder& decoder) {
  const std::string type = type_of(value);
  if (type == "Sequence") {
    const JsonValue list = value.at("decoders");
    for (size_t i = 0; i < list.size(); ++i) add_decoder(list.item(i), decoder);
  } else if (type == "Replace") {
    const std::string& from = value.at("pattern").at("String").text();
    require(!from.empty(), ExitCode::bad_data, "{}: replaces nothing", value.place());
    decoder.replacements.emplace_back(from, value.at("content").text());
  } else if (type == "ByteFallback") {
    decoder.byte_tokens = true;
  } else if (type == "Strip") {
    const int64_t start = value.at("start").number(), stop = value.at("stop").number();
    const bool known = value.at("content").text() == " " && start >= 0 && start < 8 && stop == 0;
    if (!known) refuse(value, "Strip of anything but spaces at the start");
    decoder.strip_start = static_cast<size_t>(start);
  } else if (type == "Metaspace") {
    const MetaspaceStep metaspace = read_metaspace(value);
    decoder.replacements.emplace_back(metaspace.mark, " ");
    decoder.strip_start = metaspace.prepend == MetaspaceStep::Prepend::never ? 0 : 1;
  } else if (type != "Fuse") {
    refuse(value, type);
  }
}

// Appends the ids of one piece of a template, {"SpecialToken": {...}}.
void add_marks(const JsonValue& piece, const JsonValue& definitions, std::vector<int32_t>& marks) {
  const std::string& name = piece.at("SpecialToken").at("id").text();
  const JsonValue ids = definitions.at(name).at("ids");
  require(ids.size() > 0, ExitCode::bad_data, "{}: the template's token \"{}\" has no ids",
          definitions.place(), name);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids.item(i).number();
    require(id >= 0 && id < Vocabulary::kMostIds, ExitCode::bad_data, "{} is {}: no such id",
            ids.item(i).place(), id);
    marks.push_back(static_cast<int32_t>(id));
  }
}

void read_template(const JsonValue& value, DocumentMarks& marks) {
  const JsonValue pieces = value.at("single");
  bool behind = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const JsonValue piece = pieces.item(i);
    if (!piece.at("SpecialToken").is_null()) {
      add_marks(piece, value.at("special_tokens"), behind ? marks.end : marks.start);
      continue;
    }
    require(!behind && piece.at("Sequence").at("id").text() == "A", ExitCode::bad_data,
            "{}: a template must hold the text \"A\" once", piece.place());
    behind = true;
  }
  require(behind, ExitCode::bad_data, "{}: the template has no place for the text", pieces.place());
}

// {"sep": [text, id], "cls": [text, id]} of BERT and RoBERTa.
int32_t read_pair(const JsonValue& value) {
  require(value.size() == 2, ExitCode::bad_data, "{} is not a pair of text and id", value.place());
  const int64_t id = value.item(1).number();
  require(id >= 0 && id < Vocabulary::kMostIds, ExitCode::bad_data, "{} is {}: no such id",
          value.item(1).place(), id);
  return static_cast<int32_t>(id);
}

void add_post_processor(const JsonValue& value, DocumentMarks& marks) {
  const std::string type = type_of(value);
  if (type == "Sequence") {
    const JsonValue list = value.at("processors");
    for (size_t i = 0; i < list.size(); ++i) add_post_processor(list.item(i), marks);
  } else if (type == "TemplateProcessing") {
    require(marks.start.empty() && marks.end.empty(), ExitCode::bad_data,
            "{}: a second template is not supported", value.place());
    read_template(value, marks);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    marks.start.push_back(read_pair(value.at("cls")));
    marks.end.push_back(read_pair(value.at("sep")));
  } else if (type != "ByteLevel") {
    refuse(value, type);
  }
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const JsonValue& value) {
  std::vector<NormalizerStep> steps;
  if (!value.is_null()) add_normalizer(value, steps);
  return steps;
}

PreTokenizerParts read_pre_tokenizer(const JsonValue& value) {
  PreTokenizerParts parts;
  if (!value.is_null()) add_pre_tokenizer(value, parts);
  return parts;
}

Decoder read_decoder(const JsonValue& value, bool byte_level) {
  Decoder decoder;
  if (value.is_null() || (byte_level && type_of(value) == "ByteLevel")) return decoder;
  require(!byte_level, ExitCode::bad_data, "{}: a byte-level model needs the decoder ByteLevel",
          value.place());
  add_decoder(value, decoder);
  return decoder;
}

DocumentMarks read_post_processor(const JsonValue& value, const BpeParts& parts) {
  DocumentMarks marks;
  if (value.is_null()) return marks;
  add_post_processor(value, marks);
  for (const std::vector<int32_t>* side : {&marks.start, &marks.end})
    for (int32_t id : *side) {
      const bool known =
          parts.model->vocabulary().has(id) ||
          std::ranges::any_of(parts.added, [&](const AddedToken& token) { return token.id == id; });
      require(known, ExitCode::bad_data, "{}: no token has the template's id {}", value.place(),
              id);
    }
  return marks;
}

}  // namespace trireme
