// Reads GPT-2's pair of files and tiktoken's rank files.
#include <algorithm>
#include <array>
#include <charconv>

#include "data/json_value.hpp"
#include "data/posix_file.hpp"
#include "data/tokenizer_parts.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

// Calls line(text, number) for each line, without its end ("\n" or "\r\n"); numbers start at 1.
template <class Line>
void for_each_line(std::string_view text, Line&& line) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view one = text.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    line(one, number);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

std::vector<BpeModel::Pair> read_merges(const std::string& path) {
  std::vector<BpeModel::Pair> merges;
  const std::string text = read_whole_file(path);
  for_each_line(text, [&](std::string_view line, int64_t number) {
    if (number == 1 && line.starts_with("#version")) return;
    if (line.empty() && line.data() + 1 >= text.data() + text.size()) return;
    const size_t space = line.find(' ');
    require(space != std::string_view::npos && space == line.rfind(' ') && space > 0 &&
                space + 1 < line.size(),
            ExitCode::bad_data, "{}:{}: \"{}\" is not two tokens and one space", path, number,
            line);
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  });
  return merges;
}

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Absent where the text is not base64 (RFC 4648, with its padding).
std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (char c : text) {
    const int digit = digit_of(c);
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held & 0xFF));
  }
  return bytes;
}

struct RankLine {
  std::string bytes;
  int64_t rank = 0;
};

std::optional<RankLine> read_rank_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::optional<std::string> bytes = from_base64(line.substr(0, space));
  RankLine result;
  const char* end = line.data() + line.size();
  const auto [stop, fault] = std::from_chars(line.data() + space + 1, end, result.rank);
  if (!bytes || fault != std::errc{} || stop != end) return std::nullopt;
  result.bytes = std::move(*bytes);
  return result;
}

// What the rank files of published tokenizers leave out: pattern and marks.
struct Published {
  int64_t ranks;
  const char* pattern;
  std::vector<std::pair<std::string, int32_t>> marks;
};

std::vector<std::pair<std::string, int32_t>> llama3_marks() {
  std::vector<std::pair<std::string, int32_t>> marks{{"<|begin_of_text|>", 128000},
                                                     {"<|end_of_text|>", 128001},
                                                     {"<|start_header_id|>", 128006},
                                                     {"<|end_header_id|>", 128007},
                                                     {"<|eot_id|>", 128009}};
  return marks;
}

std::vector<Published> published() {
  return {{50256, kGpt2Pattern, {{"<|endoftext|>", 50256}}},
          {50280, kGpt2Pattern, {{"<|endoftext|>", 50256}}},
          {100256,
           kLlama3Pattern,
           {{"<|endoftext|>", 100257},
            {"<|fim_prefix|>", 100258},
            {"<|fim_middle|>", 100259},
            {"<|fim_suffix|>", 100260},
            {"<|endofprompt|>", 100276}}},
          {128000, kLlama3Pattern, llama3_marks()},
          {151643,
           kQwen2Pattern,
           {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}},
          {199998, kO200kPattern, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}}};
}

}  // namespace

BpeParts read_gpt2_files(const std::string& vocab_path, const std::string& merges_path) {
  nlohmann::json storage;
  const JsonValue file = JsonValue::read(vocab_path, storage);
  require(file.raw().is_object(), ExitCode::bad_data, "{}: not an object of tokens and ids",
          vocab_path);
  Vocabulary vocabulary(vocab_path);
  for (const auto& [text, id] : file.raw().items())
    vocabulary.add(text, JsonValue(id, vocab_path + ": \"" + text + "\"").number());
  const std::vector<BpeModel::Pair> merges = read_merges(merges_path);
  BpeParts parts;
  parts.model = std::make_shared<const BpeModel>(std::move(vocabulary), merges, BpeRules{});
  if (const auto id = parts.model->vocabulary().find("<|endoftext|>"))
    parts.added.push_back({.content = "<|endoftext|>", .id = *id, .special = true});
  parts.pre_tokenizer = PreTokenizer({SplitStep{Regex(kGpt2Pattern)}});
  return parts;
}

BpeParts read_tiktoken(const std::string& path) {
  Vocabulary vocabulary(path);
  for_each_line(read_whole_file(path), [&](std::string_view line, int64_t number) {
    if (line.empty()) return;
    std::optional<RankLine> entry = read_rank_line(line);
    require(entry.has_value(), ExitCode::bad_data, "{}:{}: not base64, a space and a rank", path,
            number);
    vocabulary.add(std::move(entry->bytes), entry->rank);
  });
  const std::vector<Published> all = published();
  const auto known = std::ranges::find(all, vocabulary.count(), &Published::ranks);
  require(known != all.end(), ExitCode::bad_data,
          "{}: {} ranks; the file does not say how text is cut, and no published tokenizer has "
          "this many: use its tokenizer.json",
          path, vocabulary.count());
  BpeParts parts;
  for (const auto& [content, id] : known->marks) {
    require(!vocabulary.has(id), ExitCode::bad_data, "{}: rank {} belongs to \"{}\"", path, id,
            content);
    parts.added.push_back({.content = content, .id = id, .special = true});
  }
  parts.model = std::make_shared<const BpeModel>(BpeModel::from_ranks(std::move(vocabulary)));
  parts.pre_tokenizer = PreTokenizer({SplitStep{Regex(known->pattern)}});
  return parts;
}

bool looks_like_tiktoken(const std::string& path) {
  const InputFile file(path);
  std::string start(static_cast<size_t>(std::min<int64_t>(file.size(), 256)), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(start)));
  return read_rank_line(std::string_view(start).substr(0, start.find('\n'))).has_value();
}

}  // namespace trireme
