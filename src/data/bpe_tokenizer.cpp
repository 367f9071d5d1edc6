// The way of a text through a BPE tokenizer.
#include "data/bpe_tokenizer.hpp"

#include <algorithm>

#include "data/utf8.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

// Added tokens of one kind. Those that are looked for in normalized text are normalized too.
std::vector<AddedToken> chosen(const BpeParts& parts, bool normalized) {
  std::vector<AddedToken> result;
  for (AddedToken token : parts.added) {
    if (token.normalized != normalized) continue;
    std::string scratch;
    if (normalized)
      token.content = std::string(parts.normalizer.apply(token.content, false, scratch));
    if (!token.content.empty()) result.push_back(std::move(token));
  }
  return result;
}

bool is_byte_token(const std::string& text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeParts parts, bool special_as_text)
    : parts_(std::move(parts)),
      special_as_text_(special_as_text),
      raw_(chosen(parts_, false), special_as_text),
      normalized_(chosen(parts_, true), special_as_text),
      vocab_(parts_.model->vocabulary().size()) {
  for (const AddedToken& token : parts_.added) vocab_ = std::max<int64_t>(vocab_, token.id + 1);
  added_by_id_.resize(static_cast<size_t>(vocab_), nullptr);
  for (const AddedToken& token : parts_.added) added_by_id_[static_cast<size_t>(token.id)] = &token;
}

std::unique_ptr<Tokenizer> BpeTokenizer::clone() const {
  return std::make_unique<BpeTokenizer>(parts_, special_as_text_);
}

int32_t BpeTokenizer::end_of_document() const {
  require(parts_.end_of_document.has_value(), ExitCode::bad_data,
          "{}: the tokenizer names no token that ends a document: name one (--eod TOKEN)",
          parts_.model->vocabulary().where());
  return *parts_.end_of_document;
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  for (bool first = true; !text.empty(); first = false) {
    const size_t valid = utf8_valid_prefix(text);
    if (valid > 0) encode_valid(text.substr(0, valid), first, ids);
    text.remove_prefix(valid);
    const size_t invalid = utf8_invalid_prefix(text);
    if (invalid > 0) parts_.model->encode(text.substr(0, invalid), ids);
    text.remove_prefix(invalid);
  }
}

void BpeTokenizer::encode_valid(std::string_view text, bool first,
                                std::vector<int32_t>& ids) const {
  std::vector<AddedTokens::Piece> raw, normal;
  if (raw_.empty()) {
    raw.push_back({0, text.size(), nullptr});
  } else {
    raw_.cut(text, raw);
  }
  std::string scratch;
  for (const AddedTokens::Piece& part : raw) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      continue;
    }
    const bool at_start = first && part.begin == 0;
    const std::string_view body = parts_.normalizer.apply(
        text.substr(part.begin, part.end - part.begin), !first && part.begin == 0, scratch);
    if (normalized_.empty()) {
      encode_normalized(body, at_start, ids);
      continue;
    }
    normal.clear();
    normalized_.cut(body, normal);
    for (const AddedTokens::Piece& piece : normal) {
      if (piece.token != nullptr) {
        ids.push_back(piece.token->id);
      } else {
        encode_normalized(body.substr(piece.begin, piece.end - piece.begin),
                          at_start && piece.begin == 0, ids);
      }
    }
  }
}

void BpeTokenizer::encode_normalized(std::string_view text, bool first,
                                     std::vector<int32_t>& ids) const {
  readable_ = text;
  const auto sink = [&](std::string_view piece) { encode_piece(piece, ids); };
  parts_.pre_tokenizer.split(text, first, sink);
}

void BpeTokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() > WordCache::kLongestPiece) return parts_.model->encode(piece, ids);
  const bool padded = piece.data() >= readable_.data() && piece.data() + WordCache::kLongestPiece <=
                                                              readable_.data() + readable_.size();
  const WordCache::Key key = WordCache::key_of(piece, padded);
  WordCache::Entry& entry = cache_.place(key);
  if (WordCache::holds(entry, key)) {
    const std::span<const int32_t> found = entry.found();
    ids.insert(ids.end(), found.begin(), found.end());
    return;
  }
  const size_t before = ids.size();
  parts_.model->encode(piece, ids);
  WordCache::store(entry, key, std::span(ids).subspan(before));
}

void BpeTokenizer::decode(std::span<const int32_t> ids, std::string& text) const {
  const size_t start = text.size();
  for (int32_t id : ids) {
    const bool known =
        id >= 0 && id < vocab_ &&
        (added_by_id_[static_cast<size_t>(id)] != nullptr || parts_.model->vocabulary().has(id));
    require(known, ExitCode::bad_data, "{}: no token has the id {} (vocabulary {})",
            parts_.model->vocabulary().where(), id, vocab_);
    if (const AddedToken* added = added_by_id_[static_cast<size_t>(id)]) {
      text += added->content;
      continue;
    }
    std::string bytes = parts_.model->bytes(id);
    const bool byte =
        parts_.decoder.byte_tokens && is_byte_token(parts_.model->vocabulary().text(id));
    for (const auto& [from, to] : parts_.decoder.replacements)
      for (size_t at = 0; !byte && (at = bytes.find(from, at)) != std::string::npos;
           at += to.size())
        bytes.replace(at, from.size(), to);
    text += bytes;
  }
  for (size_t n = parts_.decoder.strip_start; n > 0 && text.size() > start && text[start] == ' ';
       --n)
    text.erase(start, 1);
}

}  // namespace trireme
