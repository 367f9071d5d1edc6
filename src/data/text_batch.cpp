#include "data/text_batch.hpp"

#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {

void BatchBuilder::add(std::string_view text) {
  batch_.text += text;
  record_bytes_ += std::ssize(text);
  require(pieces_ || record_bytes_ <= longest_, ExitCode::bad_data,
          "{}: record {} is longer than {} bytes (--longest-document sets the limit)", path_,
          records_ + 1, longest_);
  if (pieces_ && batch_.text.size() >= kBatchBytes) hand_on(true);
}

void BatchBuilder::end_record() {
  batch_.ends.push_back(batch_.text.size());
  record_bytes_ = 0;
  ++records_;
  if (batch_.text.size() >= kBatchBytes || batch_.ends.size() >= kBatchBytes / 16) hand_on(false);
}

void BatchBuilder::flush() {
  if (!batch_.ends.empty() || !batch_.text.empty()) hand_on(false);
}

void BatchBuilder::hand_on(bool open_end) {
  TextBatch next;
  next.path = path_;
  next.lines_from = batch_.lines_from;
  next.first_line = batch_.first_line + std::ssize(batch_.ends);
  batch_.open_end = open_end;
  hand_(std::exchange(batch_, std::move(next)));
}

LineCutter::LineCutter(FilePart part, BatchBuilder& batch)
    : part_(part),
      batch_(batch),
      line_start_(part.begin),
      at_(part.begin == 0 ? 0 : part.begin - 1),
      passing_(part.begin != 0) {}

bool LineCutter::take(std::string_view chunk) {
  while (!chunk.empty()) {
    const size_t found = chunk.find('\n');
    const bool whole = found != std::string_view::npos;
    const std::string_view line = chunk.substr(0, found);
    const size_t step = whole ? found + 1 : chunk.size();
    if (!passing_) {
      if (line_start_ >= part_.end) return false;
      batch_.add(line);
      open_ = !whole;
      if (whole) batch_.end_record();
    }
    at_ += static_cast<int64_t>(step);
    chunk.remove_prefix(step);
    if (!whole) continue;
    if (passing_) batch_.count_lines_from(at_);
    passing_ = false;
    line_start_ = at_;
  }
  return passing_ || open_ || line_start_ < part_.end;
}

void LineCutter::end_file() {
  if (open_) batch_.end_record();
}

bool DocumentCutter::take(std::string_view chunk) {
  if (!mark_) {
    add(chunk);
    return active_;
  }
  held_ += chunk;
  const std::string_view text = held_;
  size_t begin = 0;  // of the text not yet handed on
  size_t line = 0;
  for (size_t end; (end = text.find('\n', line)) != std::string_view::npos; line = end + 1) {
    const int64_t place = at_ + static_cast<int64_t>(line);
    if (!inside_line_ && is_mark(text.substr(line, end - line))) {
      add(text.substr(begin, line - begin));
      end_document();
      begin = end + 1;
      active_ = place < part_.end;
    }
    inside_line_ = false;
    if (!active_ && place >= part_.end) return false;
  }
  if (inside_line_ || text.size() - line > mark_->size() + 1) {
    inside_line_ = true;
    line = text.size();
  }
  add(text.substr(begin, line - begin));
  held_.erase(0, line);
  at_ += static_cast<int64_t>(line);
  return true;
}

void DocumentCutter::end_file() {
  if (!active_) {
    return;  // a mark that ends the file without a line end starts no document
  }
  if (mark_ && !inside_line_ && is_mark(held_)) {
    end_document();
  } else {
    add(held_);
  }
  // Nothing after the last mark is no document; a file of no bytes at all is an empty one.
  if (!batch_.record_is_empty()) {
    batch_.end_record();
  } else if (!marked_) {
    ++empty_;
  }
}

bool DocumentCutter::is_mark(std::string_view line) const {
  return line == *mark_ ||
         (line.size() == mark_->size() + 1 && line.ends_with('\r') && line.starts_with(*mark_));
}

void DocumentCutter::end_document() {
  marked_ = true;
  if (!active_) return;
  if (batch_.record_is_empty()) {
    ++empty_;
  } else {
    batch_.end_record();
  }
}

}  // namespace trireme
