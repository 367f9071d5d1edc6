// Reads a share's inputs in order, lets threads tokenize batches of them, and writes the ids in
// order.
#include "trireme/data/tokenize_text.hpp"

#include <algorithm>

#include "data/batch_tokens.hpp"
#include "data/open_input.hpp"
#include "data/ordered_workers.hpp"
#include "data/posix_file.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/indexed_writer.hpp"

namespace trireme {
namespace {

std::string part_prefix(const std::string& output, int index, int count) {
  return fmt::format("{}.part{}of{}", output, index + 1, count);
}

std::string mask_of(const std::string& prefix) {
  return prefix + ".mask";
}

void remove_dataset(const std::string& prefix) {
  for (const char* ending : {".idx", ".bin"}) std::remove((prefix + ending).c_str());
}

}  // namespace

struct TokenizeWork::State {
  State(const TokenizeOptions& the_options, Share the_share)
      : options(the_options),
        share(the_share),
        plan(plan_tokenization(options, share)),
        prefix(share.count == 1 ? options.output
                                : part_prefix(options.output, share.index, share.count)),
        type(token_type_for(options.tokenizer->vocab())),
        writer(std::make_unique<IndexedDatasetWriter>(IndexedDatasetWriter::Options{
            .prefix = prefix, .type = type, .durable = share.count == 1})),
        workers(options.threads) {
    if (options.prompt_key)
      mask = std::make_unique<IndexedDatasetWriter>(IndexedDatasetWriter::Options{
          .prefix = mask_of(prefix), .type = TokenType::u8, .durable = share.count == 1});
    for (int i = 0; i < options.threads; ++i) tokenizers.push_back(options.tokenizer->clone());
    report.vocab = options.tokenizer->vocab();
    const auto start_marks = options.tokenizer->start_marks();
    const auto end_marks = options.tokenizer->end_marks();
    start.assign(start_marks.begin(), start_marks.end());
    finish.assign(end_marks.begin(), end_marks.end());
    if (!options.append_end) return;
    const int32_t end = options.tokenizer->end_of_document();
    if (finish.empty() || finish.back() != end) finish.push_back(end);
  }

  void hand(TextBatch batch, bool jsonl) {
    workers.submit(
        [this, jsonl, text = std::move(batch)](int worker) {
          return tokenize_batch(text, *tokenizers[static_cast<size_t>(worker)], jsonl, options);
        },
        [this](const BatchTokens& tokens) { write(tokens); });
  }

  void write(const BatchTokens& tokens) {
    size_t begin = 0;
    for (size_t i = 0; i < tokens.ends.size(); ++i) {
      const size_t end = tokens.ends[i];
      put(std::span(tokens.ids).subspan(begin, end - begin));
      if (mask && inside_document)
        write_mask(start.size() + tokens.prompts_end[i] - begin,
                   end - tokens.prompts_end[i] + finish.size());
      begin = end;
      if (inside_document) {
        writer->append(finish);
        writer->end_document();
        ++report.documents;
      } else {
        ++report.empty_documents;
      }
      inside_document = false;
    }
    put(std::span(tokens.ids).subspan(begin));
    report.tokens = writer->tokens();
    report.blank_lines += tokens.counts.blank_lines;
    report.malformed_lines += tokens.counts.malformed_lines;
    report.lines_without_key += tokens.counts.lines_without_key;
    report.lines_without_text += tokens.counts.lines_without_text;
  }

  void put(std::span<const int32_t> ids) {
    if (ids.empty()) return;
    if (!inside_document) writer->append(start);
    inside_document = true;
    writer->append(ids);
  }

  void write_mask(size_t given, size_t counted) {
    std::vector<int32_t> flags(given, 0);
    flags.resize(given + counted, 1);
    mask->append(flags);
    mask->end_document();
  }

  // Reads one chunk; false once nothing is left.
  bool step() {
    if (!input) {
      if (next == plan.parts.size()) {
        workers.drain([this](const BatchTokens& tokens) { write(tokens); });
        return false;
      }
      const bool jsonl = plan.parts[next].jsonl;
      input = std::make_unique<OpenInput>(
          plan.parts[next], options, options.tokenizer->cuts_anywhere(),
          [this, jsonl](TextBatch batch) { hand(std::move(batch), jsonl); });
    }
    const bool more = input->read(chunk);
    report.bytes = closed_bytes + input->done();
    if (more) return true;
    const InputPart& part = plan.parts[next++];
    closed_bytes += part.standard_input ? input->done() : part.bytes;
    report.bytes = closed_bytes;
    report.empty_documents += input->empty_documents();
    report.files += part.first ? 1 : 0;
    input.reset();
    return true;
  }

  TokenizeOptions options;
  Share share;
  TokenizePlan plan;
  std::string prefix;
  TokenType type;
  std::unique_ptr<IndexedDatasetWriter> writer;
  std::unique_ptr<IndexedDatasetWriter> mask;                 // where documents have prompts
  std::unique_ptr<IndexedDatasetWriter> joined, joined_mask;  // of the process that joins
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;         // one a thread
  std::vector<int32_t> start, finish;                         // ids around a document
  TokenizeReport report;
  std::vector<char> chunk;
  size_t next = 0;  // in plan.parts
  int64_t closed_bytes = 0;
  bool inside_document = false;
  bool part_written = false;
  std::unique_ptr<OpenInput> input;
  OrderedWorkers<BatchTokens> workers;  // last: its threads end before what they use
};

TokenizeWork::TokenizeWork(const TokenizeOptions& options, Share share)
    : state_(std::make_unique<State>(options, share)) {}

TokenizeWork::~TokenizeWork() {
  if (!state_->part_written) return;
  remove_dataset(state_->prefix);
  if (state_->mask) remove_dataset(mask_of(state_->prefix));
}

bool TokenizeWork::advance(int64_t bytes) {
  const int64_t stop = state_->report.bytes + bytes;
  while (state_->report.bytes < stop)
    if (!state_->step()) return false;
  return true;
}

int64_t TokenizeWork::done_bytes() const {
  return state_->report.bytes;
}
int64_t TokenizeWork::all_bytes() const {
  return state_->plan.all_bytes;
}
const TokenizeReport& TokenizeWork::report() const {
  return state_->report;
}

void TokenizeWork::commit() {
  state_->part_written = state_->share.count > 1;
  if (state_->mask) {
    state_->mask->commit();
  } else {
    remove_dataset(mask_of(state_->prefix));  // of an older dataset of this name
  }
  state_->writer->commit();
}

std::vector<std::string> TokenizeWork::begin_join() {
  if (state_->share.count == 1) return {};
  const std::string& output = state_->options.output;
  std::vector<std::string> files;
  if (state_->mask) {
    state_->joined_mask = std::make_unique<IndexedDatasetWriter>(
        IndexedDatasetWriter::Options{.prefix = mask_of(output), .type = TokenType::u8});
    files.push_back(state_->joined_mask->temporary_tokens());
  } else {
    remove_dataset(mask_of(output));
  }
  state_->joined = std::make_unique<IndexedDatasetWriter>(
      IndexedDatasetWriter::Options{.prefix = output, .type = state_->type});
  files.push_back(state_->joined->temporary_tokens());
  return files;
}

void TokenizeWork::bring_part(const std::vector<std::string>& files) const {
  const Share share = state_->share;
  if (share.count == 1) return;
  const std::string& output = state_->options.output;
  for (const std::string& file : files) {
    const bool mask = state_->mask && file == files.front();
    const auto tokens_of = [&](int index) {
      const std::string part = part_prefix(output, index, share.count);
      return (mask ? mask_of(part) : part) + ".bin";
    };
    int64_t offset = 0;
    for (int index = 0; index < share.index; ++index) offset += InputFile(tokens_of(index)).size();
    move_into(tokens_of(share.index), file, offset);
  }
}

void TokenizeWork::finish_join() {
  const Share share = state_->share;
  if (share.count == 1) return;
  const auto finish = [&](IndexedDatasetWriter& whole, auto name) {
    for (int index = 0; index < share.count; ++index)
      whole.add_index_of(
          IndexedDataset(name(part_prefix(state_->options.output, index, share.count))));
    whole.commit();
  };
  if (state_->joined_mask) finish(*state_->joined_mask, mask_of);
  finish(*state_->joined, [](const std::string& name) { return name; });
}

TokenizeReport tokenize_text_files(const TokenizeOptions& options) {
  TokenizeWork work(options, {});
  int64_t told = 0;
  for (bool more = true; more;) {
    more = work.advance(OpenInput::kChunk);
    if (!options.progress || work.done_bytes() == told) continue;
    told = work.done_bytes();
    options.progress(told, work.all_bytes());
  }
  const TokenizeReport& report = work.report();
  require(report.documents > 0, ExitCode::bad_data,
          "no document in {} file(s) of {} bytes: nothing was written", report.files, report.bytes);
  work.commit();
  return report;
}

}  // namespace trireme
