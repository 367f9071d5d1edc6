// Reads the pieces that a process takes, lets threads tokenize batches of them, and writes the ids
// in order; joins what several processes wrote.
#include "trireme/data/tokenize_text.hpp"

#include <algorithm>
#include <deque>

#include "data/batch_tokens.hpp"
#include "data/open_input.hpp"
#include "data/ordered_workers.hpp"
#include "data/piece_map.hpp"
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
  struct TakenPiece {
    int piece;
    std::vector<InputPart> parts;
  };

  State(const TokenizeOptions& the_options, Share the_share)
      : options(the_options),
        share(the_share),
        plan(plan_tokenization(options, share)),
        map(plan.pieces, share.count),
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
    if (tokens.ended_piece) {
      const int64_t ids = writer->tokens(), documents = writer->documents();
      written.push_back({*tokens.ended_piece, ids - ended_tokens, documents - ended_documents});
      unmoved.push_back(*tokens.ended_piece);
      ended_tokens = ids;
      ended_documents = documents;
      return;
    }
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

  void take(int piece) {
    taken.push_back({piece, parts_of(plan, piece)});
    for (const InputPart& part : taken.back().parts) taken_bytes += part.bytes;
  }

  // The end of a piece goes the way of its batches, so that threads need not stand still for it.
  void end_piece(int piece) {
    const auto mark = [piece](int) {
      BatchTokens end;
      end.ended_piece = piece;
      return end;
    };
    workers.submit(mark, [this](const BatchTokens& tokens) { write(tokens); });
  }

  // Opens the next part of the pieces taken; false once nothing is left.
  bool open_next() {
    while (!taken.empty() && next == taken.front().parts.size()) {
      end_piece(taken.front().piece);
      taken.pop_front();
      next = 0;
    }
    if (taken.empty()) return false;
    const InputPart& part = taken.front().parts[next];
    input = std::make_unique<OpenInput>(
        part, options, options.tokenizer->cuts_anywhere(),
        [this, jsonl = part.jsonl](TextBatch batch) { hand(std::move(batch), jsonl); });
    return true;
  }

  // Reads one chunk; false once nothing is left.
  bool step() {
    if (!input && !open_next()) {
      workers.drain([this](const BatchTokens& tokens) { write(tokens); });
      return false;
    }
    const bool more = input->read(chunk);
    report.bytes = closed_bytes + input->done();
    if (more) return true;
    const InputPart& part = taken.front().parts[next++];
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
  PieceMap map;
  std::string prefix;
  TokenType type;
  std::unique_ptr<IndexedDatasetWriter> writer;
  std::unique_ptr<IndexedDatasetWriter> mask;                 // where documents have prompts
  std::unique_ptr<IndexedDatasetWriter> joined, joined_mask;  // of the process that joins
  std::vector<std::string> join_files;                        // of tokens, and of a mask
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;         // one a thread
  std::vector<int32_t> start, finish;                         // ids around a document
  TokenizeReport report;
  std::vector<char> chunk;
  std::deque<TakenPiece> taken;  // not yet read to the end
  size_t next = 0;               // part of the first of them
  std::vector<PieceSize> written;
  size_t told = 0;                                // of those
  std::vector<int> unmoved;                       // pieces of those
  int64_t ended_tokens = 0, ended_documents = 0;  // of all of those
  int64_t taken_bytes = 0, closed_bytes = 0;
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

int TokenizeWork::pieces() const {
  return state_->plan.pieces;
}
bool TokenizeWork::reads_standard_input(int piece) const {
  return std::ranges::any_of(parts_of(state_->plan, piece), &InputPart::standard_input);
}
int64_t TokenizeWork::bytes_of(int piece) const {
  int64_t bytes = 0;
  for (const InputPart& part : parts_of(state_->plan, piece)) bytes += part.bytes;
  return bytes;
}
void TokenizeWork::take(int piece) {
  state_->take(piece);
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
int64_t TokenizeWork::left_bytes() const {
  return std::max<int64_t>(state_->taken_bytes - state_->report.bytes, 0);
}
int64_t TokenizeWork::all_bytes() const {
  return state_->plan.all_bytes;
}
const TokenizeReport& TokenizeWork::report() const {
  return state_->report;
}

std::vector<std::string> TokenizeWork::begin_join() {
  if (state_->share.count == 1) return {};
  const std::string& output = state_->options.output;
  std::vector<std::string> files;
  const auto begin = [&](const std::string& prefix, TokenType type) {
    auto whole =
        std::make_unique<IndexedDatasetWriter>(IndexedDatasetWriter::Options{prefix, type});
    files.push_back(whole->temporary_tokens());
    return whole;
  };
  state_->joined = begin(output, state_->type);
  if (state_->mask) state_->joined_mask = begin(mask_of(output), TokenType::u8);
  return files;
}

void TokenizeWork::join_into(std::vector<std::string> files) {
  state_->join_files = std::move(files);
}

std::vector<PieceSize> TokenizeWork::finished() {
  const auto first = state_->written.begin() + static_cast<ptrdiff_t>(state_->told);
  state_->told = state_->written.size();
  return {first, state_->written.end()};
}

void TokenizeWork::learn(int process, std::span<const PieceSize> finished) {
  state_->map.learn(process, finished);
}

void TokenizeWork::bring() {
  State& s = *state_;
  if (s.share.count == 1) return;
  std::vector<PiecePlace> known;
  std::erase_if(s.unmoved, [&](int piece) {
    if (piece >= s.map.known()) return false;
    known.push_back(s.map[piece]);
    return true;
  });
  if (known.empty()) return;
  IndexedDatasetWriter* const writers[] = {s.writer.get(), s.mask.get()};
  for (size_t file = 0; file < s.join_files.size(); ++file) {
    const int64_t width = token_bytes(file == 0 ? s.type : TokenType::u8);
    std::vector<FileRun> runs;
    for (const PiecePlace& place : known)
      runs.push_back(
          {place.first_in_part * width, place.tokens * width, place.first_in_whole * width});
    writers[file]->flush();
    move_into(writers[file]->temporary_tokens(), runs, s.join_files[file]);
  }
}

void TokenizeWork::commit() {
  State& s = *state_;
  s.part_written = s.share.count > 1;
  for (const std::string& file : s.join_files) flush_to_disk(file);
  if (s.mask) {
    s.mask->commit();
  } else {
    remove_dataset(mask_of(s.prefix));  // of an older dataset of this name
  }
  s.writer->commit();
}

void TokenizeWork::finish_join() {
  State& s = *state_;
  if (s.share.count == 1) return;
  require(s.map.known() == pieces(), ExitCode::internal, "{} of {} pieces are known", s.map.known(),
          pieces());
  const auto finish = [&](IndexedDatasetWriter& whole, auto name) {
    std::vector<std::unique_ptr<IndexedDataset>> parts;
    for (int index = 0; index < s.share.count; ++index)
      parts.push_back(std::make_unique<IndexedDataset>(
          name(part_prefix(s.options.output, index, s.share.count))));
    for (const PiecePlace& place : s.map.all())
      whole.add_index_of(*parts[static_cast<size_t>(place.process)], place.first_document,
                         place.documents);
    whole.commit();
  };
  if (s.joined_mask) {
    finish(*s.joined_mask, mask_of);
  } else {
    remove_dataset(mask_of(s.options.output));
  }
  finish(*s.joined, [](const std::string& name) { return name; });
}

TokenizeReport tokenize_text_files(const TokenizeOptions& options) {
  TokenizeWork work(options, {});
  for (int piece = 0; piece < work.pieces(); ++piece) work.take(piece);
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
