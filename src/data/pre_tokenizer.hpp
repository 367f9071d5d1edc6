// Cuts text into the pieces that a BPE model sees one by one ("words").
//
// A list of steps, each of which cuts (and may change) every piece that the step before gave. One
// thread at a time; a copy may be used beside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/regex.hpp"

namespace trireme {

// Patterns of published tokenizers, by the family that introduced them.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* kLlama3Pattern =  // also cl100k
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What becomes of the matches of a pattern: a piece each; dropped; joined to the piece before or
// after.
enum class SplitBehavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next };

struct SplitStep {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // matches and what lies between them change places
};
// A space in front of each piece that does not start with one.
struct PrefixSpaceStep {};
// Spaces become `mark`; a mark goes in front where `prepend` says; then cut before each mark.
struct MetaspaceStep {
  enum class Prepend : uint8_t { never, first, always };
  std::string mark;
  Prepend prepend = Prepend::always;
  bool split = true;
};
using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps = {}) : steps_(std::move(steps)) {}

  // Calls sink(piece) for every piece of `text`, valid UTF-8, in order. `first`: the text's first
  // byte is the first of the whole input.
  template <class Sink>
  void split(std::string_view text, bool first, Sink& sink) const {
    run(0, text, first, sink);
  }

 private:
  template <class Sink>
  void run(size_t step, std::string_view text, bool first, Sink& sink) const {
    if (text.empty()) return;
    if (step == steps_.size()) return sink(text);
    if (const auto* cut = std::get_if<SplitStep>(&steps_[step])) {
      if (cut->behavior == SplitBehavior::isolated)
        return run_isolated(*cut, step, text, first, sink);
      for (std::string_view piece : pieces_of(*cut, text))
        run(step + 1, piece, first && piece.data() == text.data(), sink);
    } else if (const auto* metaspace = std::get_if<MetaspaceStep>(&steps_[step])) {
      const std::string marked = with_marks(*metaspace, text, first);
      if (!metaspace->split) return run(step + 1, marked, first, sink);
      for (size_t begin = 0, end; begin < marked.size(); begin = end) {
        end = std::min(marked.find(metaspace->mark, begin + 1), marked.size());
        run(step + 1, std::string_view(marked).substr(begin, end - begin), first && begin == 0,
            sink);
      }
    } else if (text.front() == ' ') {
      run(step + 1, text, first, sink);
    } else {
      std::string spaced(1, ' ');
      spaced += text;
      run(step + 1, spaced, first, sink);
    }
  }

  template <class Sink>
  void run_isolated(const SplitStep& cut, size_t step, std::string_view text, bool first,
                    Sink& sink) const {
    const auto hand_on = [&](size_t begin, size_t end) {
      const std::string_view piece = text.substr(begin, end - begin);
      if (step + 1 == steps_.size()) return sink(piece);
      run(step + 1, piece, first && begin == 0, sink);
    };
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
      const Regex::Match match = cut.regex.find(text, from);
      if (!match.found) break;
      if (match.begin == match.end) {  // nothing matched here: go on behind the next character
        from = next_character(text, match.end);
        continue;
      }
      if (done < match.begin) hand_on(done, match.begin);
      hand_on(match.begin, match.end);
      from = done = match.end;
    }
    if (done < text.size()) hand_on(done, text.size());
  }

  static size_t next_character(std::string_view text, size_t at);
  static std::vector<std::string_view> pieces_of(const SplitStep& cut, std::string_view text);
  static std::string with_marks(const MetaspaceStep& step, std::string_view text, bool first);

  std::vector<PreTokenizerStep> steps_;
};

}  // namespace trireme
