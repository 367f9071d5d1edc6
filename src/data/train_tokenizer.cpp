#include "trireme/data/train_tokenizer.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "data/byte_alphabet.hpp"
#include "data/json_line.hpp"
#include "data/open_input.hpp"
#include "data/pair_learner.hpp"
#include "data/posix_file.hpp"
#include "data/pre_tokenizer.hpp"
#include "data/utf8.hpp"
#include "data/vocabulary.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using nlohmann::json;

// Counts the words of valid text; bytes that are not UTF-8 are passed over.
class WordCounter {
 public:
  void add(std::string_view text) {
    bytes_ += std::ssize(text);
    const auto sink = [this](std::string_view piece) {
      const auto found = words_.find(piece);
      if (found != words_.end()) {
        ++found->second;
      } else {
        words_.emplace(piece, 1);
      }
    };
    while (!text.empty()) {
      const size_t valid = utf8_valid_prefix(text);
      pre_tokenizer_.split(text.substr(0, valid), true, sink);
      text.remove_prefix(valid);
      text.remove_prefix(utf8_invalid_prefix(text));
    }
  }
  int64_t bytes() const { return bytes_; }
  // In the order of their texts, so that nothing depends on the order of a hash table.
  std::vector<std::pair<std::string, int64_t>> sorted() const {
    std::vector<std::pair<std::string, int64_t>> result(words_.begin(), words_.end());
    std::ranges::sort(result);
    return result;
  }

 private:
  PreTokenizer pre_tokenizer_{{SplitStep{Regex(kGpt2Pattern)}}};
  TextMap<int64_t> words_;
  int64_t bytes_ = 0;
};

void count_batch(const TextBatch& batch, bool jsonl, const TokenizeOptions& options,
                 WordCounter& words) {
  size_t begin = 0;
  std::string text, fault;
  for (size_t i = 0; i < batch.ends.size(); ++i) {
    const std::string_view record =
        std::string_view(batch.text).substr(begin, batch.ends[i] - begin);
    begin = batch.ends[i];
    if (!jsonl) {
      words.add(record);
      continue;
    }
    const JsonLine kind = read_json_line(record, options.key, text, fault);
    if (kind == JsonLine::text) words.add(text);
    require(
        kind == JsonLine::text || kind == JsonLine::blank || options.bad_lines == BadLines::skip,
        ExitCode::bad_data, "{}:{}: {}", batch.path, batch.first_line + static_cast<int64_t>(i),
        fault);
  }
}

WordCounter count_words(TokenizeOptions options) {
  const ByteTokenizer any;
  options.tokenizer = &any;
  WordCounter words;
  const TokenizePlan plan = plan_tokenization(options, {});
  std::vector<char> chunk;
  for (const InputPart& part : parts_of(plan, 0)) {
    OpenInput input(part, options, false, [&](const TextBatch& batch) {
      count_batch(batch, part.jsonl, options, words);
    });
    while (input.read(chunk)) {
    }
  }
  require(words.bytes() > 0, ExitCode::bad_data, "no text to learn from in {} file(s)",
          options.inputs.size());
  return words;
}

json file_of(const std::vector<std::pair<int32_t, int32_t>>& merges, const std::string& end) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    texts.push_back(spelling_of_bytes(std::string_view(&text, 1)));
  }
  json pairs = json::array();
  for (const auto& [left, right] : merges) {
    const std::string a = texts[static_cast<size_t>(left)], b = texts[static_cast<size_t>(right)];
    pairs.push_back(a + " " + b);
    texts.push_back(a + b);
  }
  texts.push_back(end);
  json vocab = json::object();
  for (size_t id = 0; id < texts.size(); ++id) vocab[texts[id]] = id;
  require(vocab.size() == texts.size(), ExitCode::bad_data,
          "the token \"{}\" that is to end documents was learned as text: choose another", end);
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const json mark = {{"id", texts.size() - 1}, {"content", end},  {"single_word", false},
                     {"lstrip", false},        {"rstrip", false}, {"normalized", false},
                     {"special", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array({mark})},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", pairs}}}};
}

}  // namespace

TrainTokenizerReport train_tokenizer(const TrainTokenizerOptions& options) {
  require(options.vocab >= 257 && options.vocab <= Vocabulary::kMostIds, ExitCode::usage,
          "a vocabulary of {} ids: it must have 257 to {}", options.vocab, Vocabulary::kMostIds);
  require(!options.end_of_document.empty(), ExitCode::usage,
          "the token that ends a document is empty");
  OutputFile output(options.input.output);
  const WordCounter counted = count_words(options.input);
  const auto words = counted.sorted();
  PairLearner learner;
  for (const auto& [word, count] : words) learner.add(word, count);
  const auto merges = learner.learn(options.vocab - 257);
  const std::string text = file_of(merges, options.end_of_document).dump() + "\n";
  output.write(std::as_bytes(std::span(text)));
  output.flush_to_disk();
  output.publish();
  sync_directory_of(options.input.output);
  return {counted.bytes(), std::ssize(words), 257 + std::ssize(merges)};
}

}  // namespace trireme
