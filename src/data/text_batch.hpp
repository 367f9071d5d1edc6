// Cuts inputs into records (lines of JSONL, documents of text) and gathers them in batches, the
// unit of work of a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct TextBatch {
  std::string path;
  std::string text;
  std::vector<size_t> ends;  // of records in `text`
  bool open_end = false;     // text behind the last end begins a record that goes on
  int64_t first_line = 1;    // of the first record, counted from byte `lines_from` of the file
  int64_t lines_from = 0;
};

class BatchBuilder {
 public:
  using Hand = std::function<void(TextBatch)>;
  // `pieces`: a record may be handed on in pieces, so that a batch stays small. `longest`: bytes of
  // a record.
  BatchBuilder(std::string path, bool pieces, int64_t longest, Hand hand)
      : path_(std::move(path)), pieces_(pieces), longest_(longest), hand_(std::move(hand)) {
    batch_.path = path_;
  }
  void count_lines_from(int64_t byte) { batch_.lines_from = byte; }
  // Errors: bad_data where a record is longer than `longest`.
  void add(std::string_view text);
  void end_record();
  void flush();
  bool record_is_empty() const { return record_bytes_ == 0; }

 private:
  static constexpr size_t kBatchBytes = size_t{1} << 20;
  void hand_on(bool open_end);

  std::string path_;
  bool pieces_;
  int64_t longest_;
  Hand hand_;
  TextBatch batch_;
  int64_t record_bytes_ = 0, records_ = 0;
};

// The part [begin, end) of a file: the records that start there, wherever they end.
struct FilePart {
  int64_t begin = 0, end = 0;
};

// A line is a record. take() gets the file from byte begin - 1 on (from 0 where begin is 0).
class LineCutter {
 public:
  LineCutter(FilePart part, BatchBuilder& batch);
  bool take(std::string_view chunk);  // false: the part is done
  void end_file();

 private:
  FilePart part_;
  BatchBuilder& batch_;
  int64_t line_start_;  // of the line now read; behind it while the first, cut line is passed over
  int64_t at_;
  bool passing_;
  bool open_ = false;  // the line has bytes
};

// Documents end at lines that equal the mark, and at the end of the file. A document starts where
// its file starts or where the mark line before it starts.
class DocumentCutter {
 public:
  DocumentCutter(FilePart part, const std::optional<std::string>& mark, BatchBuilder& batch)
      : part_(part),
        mark_(mark),
        batch_(batch),
        at_(part.begin == 0 ? 0 : part.begin - 1),
        active_(part.begin == 0),
        inside_line_(part.begin != 0) {}
  bool take(std::string_view chunk);
  void end_file();
  int64_t empty_documents() const { return empty_; }

 private:
  bool is_mark(std::string_view line) const;
  void end_document();
  void add(std::string_view text) {
    if (active_) batch_.add(text);
  }

  FilePart part_;
  const std::optional<std::string>& mark_;
  BatchBuilder& batch_;
  int64_t at_;        // file offset of held_
  std::string held_;  // a line that may still turn out to be a mark
  bool active_;       // inside a document of this part
  bool inside_line_;  // the start of the current line was handed on: it is no mark
  bool marked_ = false;
  int64_t empty_ = 0;
};

}  // namespace trireme
