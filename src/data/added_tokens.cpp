#include "data/added_tokens.hpp"

#include <algorithm>

#include "data/utf8.hpp"

namespace trireme {
namespace {

// Bytes of the last character.
size_t last_character(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && (text[text.size() - n] & 0xC0) == 0x80) ++n;
  return n;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, bool special_as_text)
    : tokens_(std::move(tokens)), special_as_text_(special_as_text), word_("\\w"), space_("\\s") {
  group_of_.fill(-1);
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    int16_t& group = group_of_[static_cast<unsigned char>(content[0])];
    if (group < 0) {
      group = static_cast<int16_t>(groups_.size());
      groups_.push_back({{}, content});
    }
    std::string& common = groups_[static_cast<size_t>(group)].common;
    const auto [differs, ignored] = std::ranges::mismatch(common, content);
    common.erase(differs, common.end());
    groups_[static_cast<size_t>(group)].members.push_back(i);
  }
  for (Group& group : groups_)
    std::ranges::stable_sort(group.members, [&](uint32_t a, uint32_t b) {
      return tokens_[a].content.size() > tokens_[b].content.size();
    });
}

AddedTokens::AddedTokens(const AddedTokens& other) = default;

void AddedTokens::cut(std::string_view text, std::vector<Piece>& pieces) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = nullptr;
    if (group_of_[static_cast<unsigned char>(text[at])] >= 0) token = match(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (special_as_text_ && token->special) continue;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->lstrip) begin = std::max(done, begin - space_before(text.substr(0, begin)));
    if (token->rstrip) end += space_behind(text.substr(end));
    if (done < begin) pieces.push_back({done, begin, nullptr});
    pieces.push_back({begin, end, token});
    done = end;
  }
  if (done < text.size()) pieces.push_back({done, text.size(), nullptr});
}

const AddedToken* AddedTokens::match(std::string_view text) const {
  const int16_t index = group_of_[static_cast<unsigned char>(text[0])];
  const Group& group = groups_[static_cast<size_t>(index)];
  if (!text.starts_with(group.common)) return nullptr;
  for (uint32_t member : group.members)
    if (text.starts_with(tokens_[member].content)) return &tokens_[member];
  return nullptr;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end) const {
  const auto is_word = [&](std::string_view character) { return word_.find(character, 0).found; };
  if (begin > 0 &&
      is_word(text.substr(0, begin).substr(begin - last_character(text.substr(0, begin)))))
    return false;
  return end == text.size() || !is_word(text.substr(end, utf8_character(text.substr(end))));
}

size_t AddedTokens::space_before(std::string_view text) const {
  size_t n = 0;
  while (n < text.size()) {
    const std::string_view rest = text.substr(0, text.size() - n);
    const size_t step = last_character(rest);
    if (!space_.find(rest.substr(rest.size() - step), 0).found) break;
    n += step;
  }
  return n;
}

size_t AddedTokens::space_behind(std::string_view text) const {
  size_t n = 0;
  while (n < text.size()) {
    const size_t step = utf8_character(text.substr(n));
    if (!space_.find(text.substr(n, step), 0).found) break;
    n += step;
  }
  return n;
}

}  // namespace trireme
