// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// One thread at a time (short pieces of text are remembered); `clone` makes another that shares the
// tables.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab() const = 0;  // ids are below it
  // Errors: bad_data where the tokenizer has none.
  virtual int32_t end_of_document() const = 0;
  // Appends the ids of `text` (bytes as they are in the file; bytes that are not UTF-8 become ids
  // of their own). Neither marks of a document nor the end-of-document id are added.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends the text of the ids. decode(encode(text)) is text, unless the tokenizer normalizes it.
  // Errors: bad_data for an id that no token has.
  virtual void decode(std::span<const int32_t> ids, std::string& text) const = 0;
  // Whether encode(a + b) is always encode(a) then encode(b): then text may be cut anywhere.
  virtual bool cuts_anywhere() const = 0;
  // Ids that the tokenizer's own template puts before and behind a document; none for most.
  virtual std::span<const int32_t> start_marks() const { return {}; }
  virtual std::span<const int32_t> end_marks() const { return {}; }
  virtual std::unique_ptr<Tokenizer> clone() const = 0;
};

// Every byte is its own id, 0 ... 255; 256 ends a document. Vocabulary 257. Any bytes are valid
// text.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kEndOfDocument = 256;
  int64_t vocab() const override { return 257; }
  int32_t end_of_document() const override { return kEndOfDocument; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void decode(std::span<const int32_t> ids, std::string& text) const override;
  bool cuts_anywhere() const override { return true; }
  std::unique_ptr<Tokenizer> clone() const override;
};

struct TokenizerOptions {
  // The token that ends a document, by its text. Empty: eos_token of a tokenizer_config.json beside
  // the file, else the one of <|endoftext|>, <|end_of_text|>, </s> that is there.
  std::string end_of_document;
  // What the text of a special token (a mark such as <|endoftext|>) inside a document becomes.
  enum class Special : uint8_t { text, marks } special = Special::text;
};

// By name or path:
//   bytes                      the bytes tokenizer
//   tokenizer.json             of Hugging Face, with a BPE model
//   vocab.json (and merges.txt beside it)   GPT-2's files
//   NAME.tiktoken, or a tokenizer.model of tiktoken's kind (Llama 3): tiktoken's rank files, of
//                              r50k, p50k, cl100k, o200k, Llama 3 and Qwen (told by their sizes)
//   tokenizer.model            of SentencePiece, where the build found its library
//   a directory                the first of these that is in it
// Errors: usage (no such name or path), no_input (a file is missing or unreadable), bad_data (a
// fault in a file, or something in it that is not supported, by name).
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path,
                                          const TokenizerOptions& options = {});

}  // namespace trireme
