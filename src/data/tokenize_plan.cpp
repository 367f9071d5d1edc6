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
    input.standard_input = input.whole = true;
    input.path = "standard input";
    return input;
  }
  input.bytes = InputFile(path).size();
  input.packing = packing_of(path);
  input.whole =
      input.packing != Packing::none || input.bytes == 0 || !(input.jsonl || options.document_mark);
  return input;
}

// Small enough that processes end at about the same time, large enough to be few.
int pieces_for(int64_t all_bytes, int processes) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20, kMostOfAProcess = 128;
  if (processes == 1) return 1;
  const int64_t most = std::min<int64_t>(kMostOfAProcess * processes, INT32_MAX);
  return static_cast<int>(std::clamp<int64_t>(all_bytes / kPieceBytes, processes, most));
}

}  // namespace

TokenizePlan plan_tokenization(const TokenizeOptions& options, Share share) {
  check(options);
  TokenizePlan plan;
  for (const std::string& path : options.inputs) {
    plan.inputs.push_back(inspect(path, options));
    plan.all_bytes = checked_add(plan.all_bytes, plan.inputs.back().bytes);
  }
  plan.pieces =
      share.count > 1 && share.pieces > 0 ? share.pieces : pieces_for(plan.all_bytes, share.count);
  return plan;
}

std::vector<InputPart> parts_of(const TokenizePlan& plan, int piece) {
  const int64_t quotient = plan.all_bytes / plan.pieces, rest = plan.all_bytes % plan.pieces;
  const auto border = [&](int index) { return quotient * index + rest * index / plan.pieces; };
  const int64_t begin = border(piece);
  const int64_t end =
      piece + 1 == plan.pieces ? std::numeric_limits<int64_t>::max() : border(piece + 1);
  std::vector<InputPart> parts;
  int64_t place = 0;  // of the input's first byte
  for (const InputPart& input : plan.inputs) {
    const int64_t size = input.bytes;
    const int64_t from = std::clamp<int64_t>(begin - place, 0, size);
    const int64_t to = std::clamp<int64_t>(end - place, 0, size);
    const bool first = place >= begin && place < end;
    place += size;
    if (input.whole ? !first : from >= to) continue;
    InputPart& part = parts.emplace_back(input);
    part.first = first;
    if (input.whole) {
      part.part = {0, std::numeric_limits<int64_t>::max()};
    } else {
      part.part = {from, to == size ? std::numeric_limits<int64_t>::max() : to};
      part.bytes = to - from;
    }
  }
  return parts;
}

}  // namespace trireme
