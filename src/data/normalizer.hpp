// What a tokenizer does to text before anything else looks at it.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/regex.hpp"

namespace trireme {

struct UnicodeForm {
  std::string form;  // NFC, NFD, NFKC, NFKD
};
struct PrependText {
  std::string text;  // nothing is put in front of nothing
};
struct ReplaceText {
  Regex pattern;
  std::string text;
};
using NormalizerStep = std::variant<UnicodeForm, PrependText, ReplaceText>;

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}
  bool empty() const { return steps_.empty(); }
  // The result is `text` itself or lies in `scratch`. `continues`: the text goes on behind bytes
  // that are no text, and nothing is put in front of it.
  std::string_view apply(std::string_view text, bool continues, std::string& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace trireme
