#include "data/tokenize_plan.hpp"

#include <algorithm>
#include <limits>

#include "data/posix_file.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

bool is_jsonl(const std::string& path, TextFormat format) {
  if (format != TextFormat::by_name) return format == TextFormat::jsonl;
  std::string_view name = path;
  for (const char* packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.remove_suffix(std::string_view(packed).size());
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
}

void check(const TokenizeOptions& options) {
  require(options.tokenizer != nullptr && options.threads > 0, ExitCode::internal,
          "no tokenizer or no threads");
  require(!options.inputs.empty(), ExitCode::usage, "no input files: name at least one");
  require(!options.output.empty(), ExitCode::usage, "no output: name a prefix for .bin and .idx");
  for (const std::string& path : options.inputs)
    require(!options.prompt_key || is_jsonl(path, options.format), ExitCode::usage,
            "{}: a prompt key is for JSONL, and this is read as plain text (--format jsonl)", path);
  if (!options.document_mark) return;
  require(!options.document_mark->empty() &&
              options.document_mark->find_first_of("\r\n") == std::string::npos,
          ExitCode::usage, "the document mark must be the text of one line, not empty");
  for (const std::string& path : options.inputs)
    require(!is_jsonl(path, options.format), ExitCode::usage,
            "{}: a document mark is for plain text, and this is read as JSONL (--format text)",
            path);
}

InputPart inspect(const std::string& path, const TokenizeOptions& options) {
  InputPart input{.path = path, .jsonl = is_jsonl(path, options.format)};
  if (path == "-") {
    input.standard_input = true;
    input.path = "standard input";
    return input;
  }
  input.bytes = InputFile(path).size();
  input.packing = packing_of(path);
  return input;
}

}  // namespace

TokenizePlan plan_tokenization(const TokenizeOptions& options, Share share) {
  check(options);
  std::vector<InputPart> inputs;
  for (const std::string& path : options.inputs) inputs.push_back(inspect(path, options));
  TokenizePlan plan;
  for (const InputPart& input : inputs) plan.all_bytes = checked_add(plan.all_bytes, input.bytes);
  const int64_t quotient = plan.all_bytes / share.count, rest = plan.all_bytes % share.count;
  const auto border = [&](int index) { return quotient * index + rest * index / share.count; };
  const int64_t begin = border(share.index);
  const int64_t end = share.index + 1 == share.count ? std::numeric_limits<int64_t>::max()
                                                     : border(share.index + 1);
  int64_t place = 0;  // of the input's first byte
  for (InputPart input : inputs) {
    const int64_t size = input.bytes;
    const int64_t from = std::clamp<int64_t>(begin - place, 0, size);
    const int64_t to = std::clamp<int64_t>(end - place, 0, size);
    input.first = place >= begin && place < end;
    place += size;
    const bool whole = input.standard_input || input.packing != Packing::none || size == 0 ||
                       !(input.jsonl || options.document_mark);
    if (whole ? !input.first : from >= to) continue;
    if (whole) {
      input.part = {0, std::numeric_limits<int64_t>::max()};
    } else {
      input.part = {from, to == size ? std::numeric_limits<int64_t>::max() : to};
      input.bytes = to - from;
    }
    plan.parts.push_back(std::move(input));
  }
  return plan;
}

}  // namespace trireme
