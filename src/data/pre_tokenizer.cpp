// The steps that are not on the common path.
#include "data/pre_tokenizer.hpp"

#include <algorithm>

#include "data/utf8.hpp"

namespace trireme {
namespace {

struct Range {
  size_t begin, end;
  bool matched;
};

// All of the text, as matches and what lies between them.
std::vector<Range> ranges_of(const Regex& regex, std::string_view text) {
  std::vector<Range> ranges;
  size_t done = 0;
  for (size_t from = 0; from < text.size();) {
    const Regex::Match match = regex.find(text, from);
    if (!match.found) break;
    if (match.begin == match.end) {
      from = match.end + std::max<size_t>(utf8_character(text.substr(match.end)), 1);
      continue;
    }
    if (done < match.begin) ranges.push_back({done, match.begin, false});
    ranges.push_back({match.begin, match.end, true});
    from = done = match.end;
  }
  if (done < text.size()) ranges.push_back({done, text.size(), false});
  return ranges;
}

}  // namespace

size_t PreTokenizer::next_character(std::string_view text, size_t at) {
  return at + std::max<size_t>(utf8_character(text.substr(at)), 1);
}

std::vector<std::string_view> PreTokenizer::pieces_of(const SplitStep& cut, std::string_view text) {
  std::vector<Range> ranges = ranges_of(cut.regex, text);
  if (cut.invert)
    for (Range& range : ranges) range.matched = !range.matched;
  std::vector<Range> kept;
  bool before_matched = false;  // of the range before, in the order walked
  if (cut.behavior == SplitBehavior::merged_with_next) std::ranges::reverse(ranges);
  for (const Range& range : ranges) {
    const bool joins = range.matched && !before_matched && !kept.empty();
    before_matched = range.matched;
    if (cut.behavior == SplitBehavior::removed) {
      if (!range.matched) kept.push_back(range);
    } else if (joins) {
      kept.back().begin = std::min(kept.back().begin, range.begin);
      kept.back().end = std::max(kept.back().end, range.end);
    } else {
      kept.push_back(range);
    }
  }
  if (cut.behavior == SplitBehavior::merged_with_next) std::ranges::reverse(kept);
  std::vector<std::string_view> pieces;
  for (const Range& range : kept)
    pieces.push_back(text.substr(range.begin, range.end - range.begin));
  return pieces;
}

std::string PreTokenizer::with_marks(const MetaspaceStep& step, std::string_view text, bool first) {
  std::string marked;
  marked.reserve(text.size() + text.size() / 2);
  for (char c : text) {
    if (c == ' ') {
      marked += step.mark;
    } else {
      marked += c;
    }
  }
  const bool wanted = step.prepend == MetaspaceStep::Prepend::always ||
                      (step.prepend == MetaspaceStep::Prepend::first && first);
  if (wanted && !marked.starts_with(step.mark)) marked.insert(0, step.mark);
  return marked;
}

}  // namespace trireme
