#include "trireme/data/text_stream.hpp"

#include <algorithm>
#include <utility>

#include "data/utf8.hpp"

namespace trireme {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr size_t kWindow = 64;  // tokens that are decoded together
constexpr int kMostWaited = 3;  // a character has four bytes at most

// Whether more bytes can make a character of `start`, which is not one.
bool may_become_character(std::string_view start) {
  if (start.empty() || start.size() > 3) return false;
  for (const char second : {'\x80', '\x90', '\xA0'}) {
    std::string whole(start);
    whole.push_back(second);
    for (; whole.size() <= 4; whole.push_back('\x80'))
      if (utf8_character(whole) == whole.size()) return true;
  }
  return false;
}

}  // namespace

std::string as_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += kReplacement;
    text.remove_prefix(1);
  }
  return result;
}

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before,
                       InvalidBytes invalid)
    : tokenizer_(tokenizer), invalid_(invalid) {
  const size_t kept = std::min(before.size(), kWindow / 2);
  window_.assign(before.end() - static_cast<std::ptrdiff_t>(kept), before.end());
  std::string text;
  tokenizer_.decode(window_, text);
  taken_ = text.size();
}

std::string TextStream::push(int32_t token) {
  window_.push_back(token);
  std::string text;
  tokenizer_.decode(window_, text);
  // A tokenizer that gives out whole characters writes U+FFFD for one that lacks tokens.
  if (text.ends_with(kReplacement) && ++waited_ <= kMostWaited) return "";
  waited_ = 0;
  if (text.size() > taken_) held_ += text.substr(taken_);
  taken_ = text.size();
  if (window_.size() > kWindow) {
    window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(kWindow / 2));
    text.clear();
    tokenizer_.decode(window_, text);
    taken_ = text.size();
  }
  return release(false);
}

std::string TextStream::finish() {
  std::string text;
  tokenizer_.decode(window_, text);
  if (text.size() > taken_) held_ += text.substr(taken_);
  taken_ = text.size();
  return release(true);
}

std::string TextStream::release(bool all) {
  if (invalid_ == InvalidBytes::keep) return std::exchange(held_, "");
  size_t kept = 0;
  for (size_t n = 1; !all && n <= std::min<size_t>(3, held_.size()); ++n)
    if (may_become_character(std::string_view(held_).substr(held_.size() - n))) kept = n;
  const std::string rest = held_.substr(held_.size() - kept);
  held_.resize(held_.size() - kept);
  std::string text = as_utf8(held_);
  held_ = rest;
  return text;
}

}  // namespace trireme
