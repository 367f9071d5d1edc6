// Writes .bin as tokens come and .idx at the end; merges datasets.
#include "trireme/data/indexed_writer.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "data/index_format.hpp"
#include "data/posix_file.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr size_t kChunk = size_t{1} << 16;  // tokens or bytes in hand at a time

template <class T>
void pack(std::span<const int32_t> tokens, std::byte* out) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const T value = static_cast<T>(tokens[i]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

void pack(TokenType type, std::span<const int32_t> tokens, std::byte* out) {
  switch (type) {
    case TokenType::u8:
    case TokenType::i8:
      return pack<uint8_t>(tokens, out);
    case TokenType::u16:
    case TokenType::i16:
      return pack<uint16_t>(tokens, out);
    case TokenType::i32:
      return pack<int32_t>(tokens, out);
    case TokenType::i64:
      return pack<int64_t>(tokens, out);
  }
}

template <class T>
void write_value(OutputFile& file, T value) {
  file.write(std::as_bytes(std::span(&value, 1)));
}

// Copies the stored runs of a file; what lies between stays a hole.
void copy_bytes(const InputFile& from, OutputFile& to) {
  std::vector<std::byte> chunk(kChunk);
  for (int64_t done = 0; done < from.size();) {
    const int64_t first = std::min(from.next_data(done), from.size());
    if (first > done) to.skip(first - done);
    const int64_t last = std::min(from.next_hole(first), from.size());
    for (done = first; done < last;) {
      const size_t n = static_cast<size_t>(std::min<int64_t>(kChunk, last - done));
      from.read_at(done, std::span(chunk).first(n));
      to.write(std::span(chunk).first(n));
      done += static_cast<int64_t>(n);
    }
  }
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(Options options) : options_(std::move(options)) {
  require(options_.longest_sequence > 0 && options_.longest_sequence <= INT32_MAX,
          ExitCode::internal, "longest sequence {}", options_.longest_sequence);
  bin_ = std::make_unique<OutputFile>(options_.prefix + ".bin");
  idx_ = std::make_unique<OutputFile>(options_.prefix + ".idx");
}

IndexedDatasetWriter::~IndexedDatasetWriter() = default;

void IndexedDatasetWriter::append(std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    if (open_tokens_ == options_.longest_sequence) end_sequence();
    const int64_t room = options_.longest_sequence - open_tokens_;
    const size_t n = std::min(tokens.size(), static_cast<size_t>(room));
    put_tokens(tokens.first(n));
    open_tokens_ += static_cast<int64_t>(n);
    tokens = tokens.subspan(n);
  }
}

void IndexedDatasetWriter::put_tokens(std::span<const int32_t> tokens) {
  const size_t item = static_cast<size_t>(token_bytes(options_.type));
  const uint32_t largest = static_cast<uint32_t>(largest_token(options_.type));
  while (!tokens.empty()) {
    const std::span<const int32_t> part = tokens.first(std::min(tokens.size(), kChunk));
    bool fits = true;  // negative ids are huge unsigned ones
    for (int32_t id : part) fits &= static_cast<uint32_t>(id) <= largest;
    if (!fits) [[unlikely]]
      refuse_token(part);
    packed_.resize(part.size() * item);
    pack(options_.type, part, packed_.data());
    bin_->write(packed_);
    tokens_ += std::ssize(part);
    tokens = tokens.subspan(part.size());
  }
}

void IndexedDatasetWriter::refuse_token(std::span<const int32_t> tokens) const {
  const int64_t largest = largest_token(options_.type);
  const auto wrong = std::find_if(tokens.begin(), tokens.end(),
                                  [largest](int32_t id) { return id < 0 || id > largest; });
  fail(ExitCode::bad_data, "{}.bin: token id {} of document {} does not fit in {} (0 to {})",
       options_.prefix, *wrong, documents(), name_of(options_.type), largest);
}

void IndexedDatasetWriter::end_sequence() {
  lengths_.push_back(static_cast<int32_t>(open_tokens_));
  open_tokens_ = 0;
}

void IndexedDatasetWriter::end_document() {
  if (open_tokens_ > 0) end_sequence();
  document_starts_.push_back(sequences());
}

void IndexedDatasetWriter::add_document(std::span<const int32_t> tokens,
                                        std::span<const int32_t> lengths) {
  for (int32_t length : lengths) {
    require(length >= 0 && length <= std::ssize(tokens), ExitCode::internal,
            "a sequence of {} tokens where {} are left", length, tokens.size());
    append(tokens.first(static_cast<size_t>(length)));
    tokens = tokens.subspan(static_cast<size_t>(length));
    end_sequence();
  }
  require(tokens.empty(), ExitCode::internal, "{} tokens belong to no sequence", tokens.size());
  end_document();
}

void IndexedDatasetWriter::add_dataset(const IndexedDataset& dataset) {
  require(open_tokens_ == 0 && sequences() == document_starts_.back(), ExitCode::internal,
          "a dataset added inside a document");
  if (dataset.type() == options_.type) {
    copy_bytes(dataset.bin(), *bin_);
    tokens_ += dataset.tokens();
  } else {
    std::vector<int32_t> chunk(kChunk);
    for (int64_t done = 0; done < dataset.tokens();) {
      const int64_t n = std::min<int64_t>(kChunk, dataset.tokens() - done);
      const std::span<int32_t> part(chunk.data(), static_cast<size_t>(n));
      dataset.read_across(done, part);
      put_tokens(part);
      done += n;
    }
  }
  add_lengths(dataset, 0, dataset.documents());
}

void IndexedDatasetWriter::add_index_of(const IndexedDataset& dataset, int64_t first_document,
                                        int64_t documents) {
  require(open_tokens_ == 0 && sequences() == document_starts_.back() &&
              dataset.type() == options_.type,
          ExitCode::internal, "a dataset added inside a document, or of another type");
  const size_t before = lengths_.size();
  add_lengths(dataset, first_document, documents);
  const int64_t tokens = std::accumulate(lengths_.begin() + static_cast<ptrdiff_t>(before),
                                         lengths_.end(), int64_t{0});
  bin_->skip(tokens * token_bytes(options_.type));
  tokens_ += tokens;
}

const std::string& IndexedDatasetWriter::temporary_tokens() const {
  return bin_->temporary();
}

void IndexedDatasetWriter::flush() {
  bin_->flush();
}

void IndexedDatasetWriter::add_lengths(const IndexedDataset& dataset, int64_t first_document,
                                       int64_t documents) {
  const int64_t first = dataset.document_start(first_document);
  const int64_t last = dataset.document_start(first_document + documents);
  const int64_t shift = sequences() - first;
  const std::span<const int32_t> lengths = dataset.sequences().values().subspan(
      static_cast<size_t>(first), static_cast<size_t>(last - first));
  lengths_.insert(lengths_.end(), lengths.begin(), lengths.end());
  for (int64_t k = 1; k <= documents; ++k)
    document_starts_.push_back(shift + dataset.document_start(first_document + k));
}

void IndexedDatasetWriter::commit() {
  require(open_tokens_ == 0 && sequences() == document_starts_.back(), ExitCode::internal,
          "{}: a dataset committed inside a document", options_.prefix);
  write_index();
  for (OutputFile* file : {bin_.get(), idx_.get()})
    options_.durable ? file->flush_to_disk() : file->finish();
  // An old index must never stand beside a new .bin: it goes first, the new one comes last.
  remove_if_present(options_.prefix + ".idx");
  bin_->publish();
  if (options_.durable) sync_directory_of(options_.prefix);
  idx_->publish();
  if (options_.durable) sync_directory_of(options_.prefix);
}

void IndexedDatasetWriter::write_index() {
  idx_->write(std::as_bytes(std::span(kIndexMagic)));
  write_value(*idx_, kIndexVersion);
  write_value(*idx_, options_.type);
  write_value(*idx_, static_cast<uint64_t>(lengths_.size()));
  write_value(*idx_, static_cast<uint64_t>(document_starts_.size()));
  idx_->write(std::as_bytes(std::span(lengths_)));
  int64_t pointer = 0;
  for (int32_t length : lengths_) {
    write_value(*idx_, pointer);
    pointer += length * token_bytes(options_.type);
  }
  idx_->write(std::as_bytes(std::span(document_starts_)));
}

namespace {

// Masks of prompts go with their datasets: all of them have one, or none has.
void merge_masks(std::span<const std::string> inputs, const std::string& output) {
  std::vector<std::string> masks;
  for (const std::string& prefix : inputs)
    if (std::filesystem::exists(prefix + ".mask.idx")) masks.push_back(prefix + ".mask");
  require(masks.empty() || masks.size() == inputs.size(), ExitCode::bad_data,
          "{} of {} datasets have a mask (the first one is {}.idx): tokens that count cannot be "
          "told from others in the rest",
          masks.size(), inputs.size(), masks.empty() ? "" : masks[0]);
  for (const char* ending : {".idx", ".bin"}) remove_if_present(output + ".mask" + ending);
  if (!masks.empty()) merge_datasets(masks, output + ".mask", TokenType::u8);
}

}  // namespace

void merge_datasets(std::span<const std::string> inputs, const std::string& output,
                    std::optional<TokenType> type) {
  require(!inputs.empty(), ExitCode::usage, "no datasets to merge");
  merge_masks(inputs, output);
  std::vector<std::unique_ptr<IndexedDataset>> datasets;
  for (const std::string& prefix : inputs) {
    datasets.push_back(std::make_unique<IndexedDataset>(prefix));
    const TokenType first = datasets.front()->type();
    require(type.has_value() || datasets.back()->type() == first, ExitCode::bad_data,
            "{}.idx: byte 17: tokens are {}, those of {} are {}: name the type to convert to",
            prefix, name_of(datasets.back()->type()), inputs.front(), name_of(first));
  }
  IndexedDatasetWriter writer({.prefix = output, .type = type.value_or(datasets.front()->type())});
  for (const auto& dataset : datasets) writer.add_dataset(*dataset);
  writer.commit();
}

}  // namespace trireme
