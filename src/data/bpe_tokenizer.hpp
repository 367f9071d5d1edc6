// A tokenizer around a BPE model: added tokens, normalizer, pre-tokenizer, model, decoder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/added_tokens.hpp"
#include "data/bpe_model.hpp"
#include "data/normalizer.hpp"
#include "data/pre_tokenizer.hpp"
#include "data/word_cache.hpp"
#include "trireme/data/tokenizer.hpp"

namespace trireme {

// How ids become text again, for models whose tokens are characters.
struct Decoder {
  std::vector<std::pair<std::string, std::string>> replacements;  // within each token, in order
  size_t strip_start = 0;    // spaces taken from the start of the whole text, where they are
  bool byte_tokens = false;  // <0x0A> is the byte 10
};

struct BpeParts {
  std::shared_ptr<const BpeModel> model;
  std::vector<AddedToken> added;  // with their ids
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  std::vector<int32_t> start_marks, end_marks;  // of a document
  std::optional<int32_t> end_of_document;
};

class BpeTokenizer : public Tokenizer {
 public:
  // `special_as_text`: marks that stand in the text are text.
  BpeTokenizer(BpeParts parts, bool special_as_text);

  int64_t vocab() const override { return vocab_; }
  int32_t end_of_document() const override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void decode(std::span<const int32_t> ids, std::string& text) const override;
  bool cuts_anywhere() const override { return false; }
  std::span<const int32_t> start_marks() const override { return parts_.start_marks; }
  std::span<const int32_t> end_marks() const override { return parts_.end_marks; }
  std::unique_ptr<Tokenizer> clone() const override;

 private:
  void encode_valid(std::string_view text, bool first, std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view text, bool first, std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;

  BpeParts parts_;
  bool special_as_text_;
  AddedTokens raw_, normalized_;
  std::vector<const AddedToken*> added_by_id_;
  int64_t vocab_ = 0;
  mutable WordCache cache_;
  mutable std::string_view readable_;  // the text that pieces are cut from at the moment
};

}  // namespace trireme
