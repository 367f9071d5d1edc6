#include "data/batch_tokens.hpp"

#include <algorithm>

#include "data/byte_source.hpp"
#include "data/json_line.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

// Number of a line that is `behind` lines after byte `from`, where one starts.
int64_t line_number(const TextBatch& batch, int64_t behind) {
  int64_t lines = behind;
  if (batch.lines_from == 0) return lines;
  const auto source = open_file(batch.path, 0);
  std::vector<char> chunk(size_t{1} << 20);
  for (int64_t left = batch.lines_from; left > 0;) {
    const size_t most = static_cast<size_t>(std::min<int64_t>(left, std::ssize(chunk)));
    const size_t n = source->read(std::span(chunk).first(most));
    if (n == 0) break;
    lines += std::count(chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(n), '\n');
    left -= static_cast<int64_t>(n);
  }
  return lines;
}

void count(JsonLine kind, TokenizeReport& counts) {
  if (kind == JsonLine::blank) ++counts.blank_lines;
  if (kind == JsonLine::malformed) ++counts.malformed_lines;
  if (kind == JsonLine::missing_key) ++counts.lines_without_key;
  if (kind == JsonLine::not_text) ++counts.lines_without_text;
}

}  // namespace

BatchTokens tokenize_batch(const TextBatch& batch, const Tokenizer& tokenizer, bool jsonl,
                           const TokenizeOptions& options) {
  BatchTokens result;
  result.ids.reserve(batch.text.size() / 3);
  result.open_end = batch.open_end;
  std::string text, prompt, fault;
  size_t begin = 0;
  for (size_t i = 0; i < batch.ends.size(); ++i) {
    const std::string_view record =
        std::string_view(batch.text).substr(begin, batch.ends[i] - begin);
    begin = batch.ends[i];
    if (!jsonl) {
      tokenizer.encode(record, result.ids);
      result.ends.push_back(result.ids.size());
      continue;
    }
    JsonLine kind = read_json_line(record, options.key, text, fault);
    if (kind == JsonLine::text && options.prompt_key)
      kind = read_json_line(record, *options.prompt_key, prompt, fault);
    if (kind == JsonLine::text) {
      if (options.prompt_key) {
        // Without an answer nothing would count: such a line is an empty document.
        if (!text.empty()) tokenizer.encode(prompt, result.ids);
        result.prompts_end.push_back(result.ids.size());
      }
      tokenizer.encode(text, result.ids);
      result.ends.push_back(result.ids.size());
      continue;
    }
    require(kind == JsonLine::blank || options.bad_lines == BadLines::skip, ExitCode::bad_data,
            "{}:{}: {} (--bad-lines skip leaves such lines out)", batch.path,
            line_number(batch, batch.first_line + static_cast<int64_t>(i)), fault);
    count(kind, result.counts);
  }
  if (batch.open_end) tokenizer.encode(std::string_view(batch.text).substr(begin), result.ids);
  return result;
}

}  // namespace trireme
