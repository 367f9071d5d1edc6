#include "data/normalizer.hpp"

#include <algorithm>

#include "data/unicode_normal.hpp"

namespace trireme {
namespace {

void apply_step(const UnicodeForm& step, std::string_view text, std::string& result) {
  const bool ascii = std::ranges::none_of(text, [](char c) { return (c & 0x80) != 0; });
  if (ascii) {
    result.append(text);  // every form keeps ASCII
  } else {
    unicode_normalize(step.form, text, result);
  }
}

void apply_step(const PrependText& step, std::string_view text, std::string& result) {
  if (!text.empty()) result += step.text;
  result += text;
}

void apply_step(const ReplaceText& step, std::string_view text, std::string& result) {
  size_t done = 0;
  for (size_t from = 0; from < text.size();) {
    const Regex::Match match = step.pattern.find(text, from);
    if (!match.found || match.begin == match.end) break;
    result.append(text.substr(done, match.begin - done)).append(step.text);
    from = done = match.end;
  }
  result += text.substr(done);
}

}  // namespace

std::string_view Normalizer::apply(std::string_view text, bool continues,
                                   std::string& scratch) const {
  for (const NormalizerStep& step : steps_) {
    if (continues && std::holds_alternative<PrependText>(step)) continue;
    std::string result;
    result.reserve(text.size() + text.size() / 2);
    std::visit([&](const auto& kind) { apply_step(kind, text, result); }, step);
    scratch.swap(result);
    text = scratch;
  }
  return text;
}

}  // namespace trireme
