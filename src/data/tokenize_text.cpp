// Streams text files through a tokenizer into a dataset, cutting documents at mark lines.
#include "trireme/data/tokenize_text.hpp"

#include <algorithm>
#include <string_view>

#include "data/posix_file.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/indexed_writer.hpp"

namespace trireme {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;  // bytes of text read at a time

// Takes the text of one document after the other, in pieces, and writes their tokens.
class DocumentSink {
 public:
  DocumentSink(const Tokenizer& tokenizer, IndexedDatasetWriter& writer)
      : tokenizer_(tokenizer), writer_(writer) {}

  void add(std::string_view text) {
    document_bytes_ += std::ssize(text);
    if (tokenizer_.cuts_anywhere()) {
      put(text);
    } else {
      held_ += text;
    }
  }

  // False where the document had no bytes: nothing was written.
  bool end_document() {
    if (document_bytes_ == 0) return false;
    if (!held_.empty()) put(held_);
    held_.clear();
    const int32_t end = tokenizer_.end_of_document();
    writer_.append(std::span(&end, 1));
    writer_.end_document();
    document_bytes_ = 0;
    return true;
  }

 private:
  void put(std::string_view text) {
    ids_.clear();
    tokenizer_.encode(text, ids_);
    writer_.append(ids_);
  }

  const Tokenizer& tokenizer_;
  IndexedDatasetWriter& writer_;
  std::string held_;  // the document so far, for tokenizers that need it whole
  std::vector<int32_t> ids_;
  int64_t document_bytes_ = 0;
};

// Cuts one file into documents at mark lines. A line that may still turn out to be a mark is held
// back until its end is seen; no more than that is held.
class FileCutter {
 public:
  FileCutter(const std::optional<std::string>& mark, DocumentSink& sink, TokenizeReport& report)
      : mark_(mark), sink_(sink), report_(report) {}

  void take(std::string_view chunk) {
    if (!mark_) return sink_.add(chunk);
    held_ += chunk;
    const std::string_view text = held_;
    size_t begin = 0;  // of the text not yet handed on
    size_t line = 0;
    for (size_t end; (end = text.find('\n', line)) != std::string_view::npos; line = end + 1) {
      if (!inside_line_ && is_mark(text.substr(line, end - line))) {
        sink_.add(text.substr(begin, line - begin));
        end_document();
        begin = end + 1;
      }
      inside_line_ = false;
    }
    if (inside_line_ || text.size() - line > mark_->size() + 1) {
      inside_line_ = true;
      line = text.size();
    }
    sink_.add(text.substr(begin, line - begin));
    held_.erase(0, line);
  }

  void end_file() {
    if (mark_ && !inside_line_ && is_mark(held_)) {
      end_document();
    } else {
      sink_.add(held_);
    }
    // Nothing after the last mark is no document; a file of no bytes at all is an empty one.
    if (sink_.end_document()) {
      ++report_.documents;
    } else if (!marked_) {
      ++report_.empty_documents;
    }
  }

 private:
  bool is_mark(std::string_view line) const {
    return line == *mark_ ||
           (line.size() == mark_->size() + 1 && line.ends_with('\r') && line.starts_with(*mark_));
  }
  void end_document() {
    marked_ = true;
    ++(sink_.end_document() ? report_.documents : report_.empty_documents);
  }

  const std::optional<std::string>& mark_;
  DocumentSink& sink_;
  TokenizeReport& report_;
  std::string held_;
  bool inside_line_ = false;  // the start of the current line was handed on: it is no mark
  bool marked_ = false;
};

// All inputs must be there before anything is written. Returns their bytes.
int64_t check(const TokenizeOptions& options) {
  require(options.tokenizer != nullptr, ExitCode::internal, "no tokenizer");
  require(!options.inputs.empty(), ExitCode::usage, "no input files: name at least one");
  require(!options.output.empty(), ExitCode::usage, "no output: name a prefix for .bin and .idx");
  if (options.document_mark)
    require(!options.document_mark->empty() &&
                options.document_mark->find_first_of("\r\n") == std::string::npos,
            ExitCode::usage, "the document mark must be the text of one line, not empty");
  int64_t bytes = 0;
  for (const std::string& path : options.inputs) bytes += InputFile(path).size();
  return bytes;
}

}  // namespace

TokenizeReport tokenize_text_files(const TokenizeOptions& options) {
  const int64_t all_bytes = check(options);
  TokenizeReport report;
  report.vocab = options.tokenizer->vocab();
  IndexedDatasetWriter writer({.prefix = options.output, .type = token_type_for(report.vocab)});
  DocumentSink sink(*options.tokenizer, writer);
  std::string chunk;
  for (const std::string& path : options.inputs) {
    const InputFile file(path);
    FileCutter cutter(options.document_mark, sink, report);
    for (int64_t done = 0; done < file.size(); done += std::ssize(chunk)) {
      chunk.resize(static_cast<size_t>(std::min(kChunk, file.size() - done)));
      file.read_at(done, std::as_writable_bytes(std::span(chunk)));
      cutter.take(chunk);
      report.bytes += std::ssize(chunk);
      if (options.progress) options.progress(report.bytes, all_bytes);
    }
    cutter.end_file();
    ++report.files;
  }
  require(report.documents > 0, ExitCode::bad_data,
          "no document in {} file(s) of {} bytes: nothing was written", report.files, report.bytes);
  report.tokens = writer.tokens();
  writer.commit();
  return report;
}

}  // namespace trireme
