// Builds the tables of a BPE model and turns pieces into first symbols.
#include "data/bpe_model.hpp"

#include "data/bpe_merge.hpp"
#include "data/byte_alphabet.hpp"
#include "data/utf8.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr size_t kLongestPiece = size_t{1} << 31;

std::string byte_token(unsigned char byte) {
  return fmt::format("<0x{:02X}>", static_cast<unsigned>(byte));
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, BpeRules rules, size_t pairs)
    : vocabulary_(std::move(vocabulary)), rules_(std::move(rules)), merges_(pairs) {
  if (!rules_.unknown.empty()) {
    unknown_ = vocabulary_.find(rules_.unknown);
    require(unknown_.has_value(), ExitCode::bad_data,
            "{}: the unknown token \"{}\" is not in the vocabulary", vocabulary_.where(),
            rules_.unknown);
  }
}

BpeModel::BpeModel(Vocabulary vocabulary, std::span<const Pair> merges, BpeRules rules)
    : BpeModel(std::move(vocabulary), std::move(rules), merges.size()) {
  const auto id_of = [&](const std::string& text, size_t rank) {
    const std::optional<int32_t> id = vocabulary_.find(text);
    require(id.has_value(), ExitCode::bad_data,
            "{}: merge {} needs the token \"{}\", which is not in the vocabulary",
            vocabulary_.where(), rank, text);
    return *id;
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const Merge merge{static_cast<uint32_t>(rank), id_of(left + right, rank)};
    require(merges_.add(id_of(left, rank), id_of(right, rank), merge), ExitCode::bad_data,
            "{}: merge {}, \"{}\" and \"{}\", comes twice", vocabulary_.where(), rank, left, right);
  }
  read_bytes();
  read_symbols();
}

BpeModel BpeModel::from_ranks(Vocabulary ranks) {
  struct Split {
    int32_t left, right, whole;
  };
  std::vector<Split> splits;
  for (int32_t id = 0; id < ranks.size(); ++id) {
    if (!ranks.has(id)) continue;
    const std::string_view text = ranks.text(id);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ranks.find(text.substr(0, cut));
      const auto right = left ? ranks.find(text.substr(cut)) : std::nullopt;
      if (right) splits.push_back({*left, *right, id});
    }
  }
  BpeModel model(std::move(ranks), {.ignore_merges = true}, splits.size());
  for (const Split& split : splits)
    model.merges_.add(split.left, split.right, {static_cast<uint32_t>(split.whole), split.whole});
  for (int32_t id = 0; id < model.vocabulary_.size(); ++id) {
    model.bytes_.emplace_back(model.vocabulary_.has(id) ? model.vocabulary_.text(id) : "");
    if (model.vocabulary_.has(id)) model.whole_.emplace(model.bytes_.back(), id);
  }
  model.read_symbols();
  return model;
}

// Bytes of tokens. A token of a byte-level model that is not spelled in the alphabet (a mark) is
// literal, and no piece can become it.
void BpeModel::read_bytes() {
  bytes_.resize(static_cast<size_t>(vocabulary_.size()));
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.has(id)) continue;
    const std::string& text = vocabulary_.text(id);
    const std::optional<std::string> spelled =
        rules_.byte_level ? bytes_of_spelling(text) : std::nullopt;
    bytes_[static_cast<size_t>(id)] = spelled.value_or(text);
    if (spelled) whole_.emplace(*spelled, id);
  }
}

void BpeModel::read_symbols() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    std::optional<int32_t> id;
    if (rules_.byte_level) {
      const auto found = whole_.find(std::string_view(&text, 1));
      if (found != whole_.end()) id = found->second;
    } else if (rules_.byte_fallback) {
      id = vocabulary_.find(byte_token(static_cast<unsigned char>(byte)));
      if (id) bytes_[static_cast<size_t>(*id)] = text;
    }
    byte_symbol_[byte] = id.value_or(-1);
  }
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  require(piece.size() < kLongestPiece, ExitCode::bad_data,
          "a piece of {} bytes between two places where text may be cut: the limit is {}",
          piece.size(), kLongestPiece);
  if (rules_.ignore_merges) {
    const std::optional<int32_t> id = [&]() -> std::optional<int32_t> {
      if (!rules_.byte_level) return vocabulary_.find(piece);
      const auto found = whole_.find(piece);
      return found == whole_.end() ? std::nullopt : std::optional(found->second);
    }();
    if (id) return ids.push_back(*id);
  }
  const size_t first = ids.size();
  start_symbols(piece, ids);
  merge_symbols(merges_, first, ids);
}

void BpeModel::start_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  if (!rules_.byte_level) return character_symbols(piece, symbols);
  bool was_unknown = false;
  for (char c : piece) {
    const int32_t id = byte_symbol_[static_cast<unsigned char>(c)];
    if (id >= 0) [[likely]] {
      symbols.push_back(id);
    } else {
      require(unknown_.has_value(), ExitCode::bad_data,
              "{}: the vocabulary has no token for byte 0x{:02x} and no unknown token",
              vocabulary_.where(), static_cast<unsigned char>(c));
      if (!(was_unknown && rules_.fuse_unknown)) symbols.push_back(*unknown_);
    }
    was_unknown = id < 0;
  }
}

void BpeModel::character_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  bool was_unknown = false;
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, std::max<size_t>(utf8_character(piece), 1));
    piece.remove_prefix(character.size());
    const std::optional<int32_t> id = vocabulary_.find(character);
    if (id) {
      symbols.push_back(*id);
    } else if (!fall_back(character, symbols)) {
      require(unknown_.has_value(), ExitCode::bad_data,
              "{}: the vocabulary has no token for \"{}\" and no unknown token",
              vocabulary_.where(), character);
      if (!(was_unknown && rules_.fuse_unknown)) symbols.push_back(*unknown_);
      was_unknown = true;
      continue;
    }
    was_unknown = false;
  }
}

bool BpeModel::fall_back(std::string_view character, std::vector<int32_t>& symbols) const {
  for (char c : character)
    if (byte_symbol_[static_cast<unsigned char>(c)] < 0) return false;
  for (char c : character) symbols.push_back(byte_symbol_[static_cast<unsigned char>(c)]);
  return true;
}

}  // namespace trireme
