// tokenizer.model by SentencePiece's own library.
#include <sentencepiece_processor.h>

#include "data/json_value.hpp"
#include "data/sentencepiece_check.hpp"
#include "data/sentencepiece_model.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  using Processor = sentencepiece::SentencePieceProcessor;
  SentencePieceTokenizer(std::shared_ptr<const Processor> processor, std::string path, int32_t end)
      : processor_(std::move(processor)), path_(std::move(path)), end_(end) {}

  int64_t vocab() const override { return processor_->GetPieceSize(); }
  int32_t end_of_document() const override {
    require(end_ >= 0, ExitCode::bad_data,
            "{}: the model has no token that ends a document: name one (--eod TOKEN)", path_);
    return end_;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> found;
    const auto status = processor_->Encode({text.data(), text.size()}, &found);
    require(status.ok(), ExitCode::bad_data, "{}: {}", path_, status.ToString());
    ids.insert(ids.end(), found.begin(), found.end());
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (int32_t id : ids)
      require(id >= 0 && id < vocab(), ExitCode::bad_data,
              "{}: no token has the id {} (vocabulary {})", path_, id, vocab());
    std::string decoded;
    const auto status = processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &decoded);
    require(status.ok(), ExitCode::bad_data, "{}: {}", path_, status.ToString());
    text += decoded;
  }
  bool cuts_anywhere() const override { return false; }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<SentencePieceTokenizer>(processor_, path_, end_);
  }

 private:
  std::shared_ptr<const Processor> processor_;
  std::string path_;
  int32_t end_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path,
                                              const TokenizerOptions& options) {
  const std::string bytes = read_whole_file(path);
  check_sentencepiece_model(bytes, path);
  auto processor = std::make_shared<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto({bytes.data(), bytes.size()});
  require(status.ok(), ExitCode::bad_data, "{}: not a SentencePiece model: {}", path,
          status.ToString());
  int32_t end = processor->eos_id();
  if (!options.end_of_document.empty()) {
    end = processor->PieceToId(options.end_of_document);
    require(processor->IdToPiece(end) == options.end_of_document, ExitCode::bad_data,
            "{}: no token \"{}\"", path, options.end_of_document);
  }
  return std::make_unique<SentencePieceTokenizer>(std::move(processor), path, end);
}

}  // namespace trireme
