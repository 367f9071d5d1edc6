// Byte-pair encoding of one piece of text: exact, and O(n log n) for a piece of n symbols.
//
// Definition (Sennrich et al., 2016): start from single symbols, merge the adjacent pair of lowest
// rank, the leftmost of equals, until none merges. Symbols are bytes (byte-level models) or
// characters, with bytes spelled <0x00> ... <0xFF> for characters that are not in the vocabulary.
// Immutable once built: shared by threads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/merge_table.hpp"
#include "data/vocabulary.hpp"

namespace trireme {

struct BpeRules {
  bool byte_level = true;      // tokens are spelled in the byte alphabet
  bool ignore_merges = false;  // a piece that is a token is taken whole
  bool byte_fallback = false;  // of character models
  bool fuse_unknown = false;   // neighbours that are unknown become one
  std::string unknown;         // token of what has no other; empty: none
};

class BpeModel {
 public:
  // Pairs are texts as in the vocabulary, in the order of their ranks. Errors: bad_data for a pair
  // whose parts or whole are not in the vocabulary, or that comes twice.
  using Pair = std::pair<std::string, std::string>;
  BpeModel(Vocabulary vocabulary, std::span<const Pair> merges, BpeRules rules);
  // tiktoken's ranks: texts are bytes, and the rank of a pair is the id of its concatenation.
  static BpeModel from_ranks(Vocabulary ranks);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeRules& rules() const { return rules_; }
  // The bytes of a token; byte spellings are resolved. The id must be there.
  const std::string& bytes(int32_t id) const { return bytes_[static_cast<size_t>(id)]; }

  // Appends the ids of a piece. Errors: bad_data where a byte or character has no token.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  BpeModel(Vocabulary vocabulary, BpeRules rules, size_t pairs);
  void read_bytes();
  void read_symbols();
  void start_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  void character_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  bool fall_back(std::string_view character, std::vector<int32_t>& symbols) const;

  Vocabulary vocabulary_;
  BpeRules rules_;
  MergeTable merges_;
  std::vector<std::string> bytes_;          // by id
  TextMap<int32_t> whole_;                  // bytes to id, for ignore_merges of byte levels
  std::array<int32_t, 256> byte_symbol_{};  // -1: none
  std::optional<int32_t> unknown_;
};

}  // namespace trireme
