// Text to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab() const = 0;
  virtual int32_t end_of_document() const = 0;
  // Appends the ids of `text` (bytes as they are in the file); never the end-of-document id.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Whether encode(a + b) is always encode(a) then encode(b): then text may be cut anywhere.
  virtual bool cuts_anywhere() const = 0;
};

// Every byte is its own id, 0 ... 255; 256 ends a document. Vocabulary 257. Any bytes are valid
// text.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kEndOfDocument = 256;
  int64_t vocab() const override { return 257; }
  int32_t end_of_document() const override { return kEndOfDocument; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  bool cuts_anywhere() const override { return true; }
};

// By name: "bytes". An unknown name is an Error(usage) that lists the names.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

}  // namespace trireme
