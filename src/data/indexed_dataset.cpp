// Opens, checks and reads Megatron datasets. The whole index is checked once, so that reads need
// only their own bounds and the ids' range.
#include "trireme/data/indexed_dataset.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>

#include "data/index_format.hpp"
#include "data/posix_file.hpp"
#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

constexpr size_t kChunk = size_t{1} << 16;  // entries of an index array, bytes of .bin
constexpr size_t kMiB = size_t{1} << 20;

// Why a pointer is not `expected`, in words.
std::string pointer_fault(int64_t pointer, int64_t expected, int64_t item) {
  if (pointer < 0) return "is negative";
  if (pointer % item != 0) return fmt::format("is no multiple of the {}-byte tokens", item);
  return fmt::format("is not {}, where the sequence before it ends", expected);
}

template <class Visit>
void visit_entries(const InputFile& idx, int64_t offset, int64_t count, Visit visit) {
  std::vector<int64_t> chunk(static_cast<size_t>(std::min<int64_t>(count, kChunk)));
  for (int64_t first = 0; first < count; first += std::ssize(chunk)) {
    const int64_t n = std::min<int64_t>(std::ssize(chunk), count - first);
    const std::span<int64_t> part(chunk.data(), static_cast<size_t>(n));
    idx.read_at(offset + 8 * first, std::as_writable_bytes(part));
    for (int64_t i = 0; i < n; ++i) visit(first + i, part[static_cast<size_t>(i)]);
  }
}

}  // namespace

int64_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::u8:
    case TokenType::i8:
      return 1;
    case TokenType::i16:
    case TokenType::u16:
      return 2;
    case TokenType::i32:
      return 4;
    case TokenType::i64:
      return 8;
  }
  fail(ExitCode::internal, "token type {}", static_cast<int>(type));
}

const char* name_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return "uint8";
    case TokenType::i8:
      return "int8";
    case TokenType::i16:
      return "int16";
    case TokenType::i32:
      return "int32";
    case TokenType::i64:
      return "int64";
    case TokenType::u16:
      return "uint16";
  }
  return "unknown";
}

int64_t largest_token(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return UINT8_MAX;
    case TokenType::i8:
      return INT8_MAX;
    case TokenType::i16:
      return INT16_MAX;
    case TokenType::u16:
      return UINT16_MAX;
    case TokenType::i32:
    case TokenType::i64:
      return INT32_MAX;
  }
  return 0;
}

TokenType token_type_for(int64_t vocab) {
  return vocab < 65500 ? TokenType::u16 : TokenType::i32;
}

std::string dataset_prefix(std::string path) {
  if (path.ends_with(".bin") || path.ends_with(".idx")) path.resize(path.size() - 4);
  return path;
}

IndexedDataset::IndexedDataset(std::string prefix, int64_t vocab,
                               std::shared_ptr<IndexMemory> memory)
    : prefix_(std::move(prefix)),
      limit_(vocab > 0 ? std::min<int64_t>(vocab, int64_t{1} << 31) : int64_t{1} << 31),
      memory_(memory == nullptr ? std::make_shared<IndexMemory>() : std::move(memory)) {
  static_assert(std::endian::native == std::endian::little, "the files are little-endian");
  read_index();
  open_tokens();
}

IndexedDataset::~IndexedDataset() = default;

void IndexedDataset::read_index() {
  require(!prefix_.empty(), ExitCode::bad_config, "no dataset: name the prefix of .bin and .idx");
  const bool whole_name = dataset_prefix(prefix_) != prefix_;
  require(!whole_name || std::filesystem::exists(prefix_ + ".idx"), ExitCode::no_input,
          "{}.idx: not there; a dataset is named without the ending: {}", prefix_,
          dataset_prefix(prefix_));
  const InputFile idx(prefix_ + ".idx");
  const IndexHeader header = read_index_header(idx);
  type_ = header.type;
  documents_ = header.document_entries - 1;
  const std::span<int32_t> lengths = memory_->take<int32_t>(header.sequences);
  if (!memory_->built()) read_lengths(idx, lengths);
  lengths_ = SequenceLengths(lengths, memory_);
  // Where every document is one sequence, as in most files, no table of them is kept.
  const int64_t entries = header.document_entries;
  const std::span<uint8_t> one_each = memory_->take<uint8_t>(1);
  if (!memory_->built()) {
    check_pointers(idx);
    one_each[0] = read_documents(idx, entries, {}) ? 1 : 0;
  }
  if (one_each[0] != 0) return;
  const std::span<int64_t> starts = memory_->take<int64_t>(entries);
  if (!memory_->built()) read_documents(idx, entries, starts);
  document_starts_ = starts;
}

void IndexedDataset::open_tokens() {
  bin_ = std::make_unique<InputFile>(prefix_ + ".bin");
  const int64_t expected = checked_mul(tokens(), token_bytes(type_));
  require(
      bin_->size() == expected, ExitCode::bad_data,
      "{}: {} at byte {}: {}.idx describes {} tokens of {} bytes, {} bytes in all; the two files "
      "do not belong together or one was cut",
      bin_->path(), bin_->size() < expected ? "ends" : "should end",
      std::min(bin_->size(), expected), prefix_, tokens(), token_bytes(type_), expected);
}

void IndexedDataset::read_lengths(const InputFile& idx, std::span<int32_t> lengths) {
  idx.read_at(kIndexHeaderBytes, std::as_writable_bytes(lengths));
  for (int64_t i = 0; i < std::ssize(lengths); ++i)
    require(lengths[static_cast<size_t>(i)] >= 0, ExitCode::bad_data,
            "{}: byte {}: sequence {} has the negative length {}", idx.path(),
            kIndexHeaderBytes + 4 * i, i, lengths[static_cast<size_t>(i)]);
}

void IndexedDataset::check_pointers(const InputFile& idx) const {
  const int64_t offset = kIndexHeaderBytes + 4 * lengths_.count();
  const int64_t item = token_bytes(type_);
  checked_mul(tokens(), item);
  int64_t expected = 0;
  visit_entries(idx, offset, lengths_.count(), [&](int64_t i, int64_t pointer) {
    if (pointer != expected) [[unlikely]]
      fail(ExitCode::bad_data, "{}: byte {}: pointer {} of sequence {} {}", idx.path(),
           offset + 8 * i, pointer, i, pointer_fault(pointer, expected, item));
    expected += item * lengths_[i];
  });
}

bool IndexedDataset::read_documents(const InputFile& idx, int64_t entries,
                                    std::span<int64_t> starts) const {
  const int64_t sequences = lengths_.count();
  const int64_t offset = kIndexHeaderBytes + 12 * sequences;
  int64_t previous = 0;
  bool one_each = entries == sequences + 1;
  visit_entries(idx, offset, entries, [&](int64_t k, int64_t start) {
    if (start < previous || start > sequences || (k == 0 && start != 0)) [[unlikely]]
      fail(ExitCode::bad_data,
           "{}: byte {}: document {} starts at sequence {}, not between {} and {}", idx.path(),
           offset + 8 * k, k, start, previous, k == 0 ? 0 : sequences);
    one_each = one_each && start == k;
    if (!starts.empty()) starts[static_cast<size_t>(k)] = start;
    previous = start;
  });
  require(previous == sequences, ExitCode::bad_data,
          "{}: byte {}: the documents end at sequence {}, there are {} sequences", idx.path(),
          offset + 8 * documents_, previous, sequences);
  return one_each;
}

int64_t IndexedDataset::document_start(int64_t k) const {
  require(k >= 0 && k <= documents_, ExitCode::internal, "document {} of {}", k, documents_);
  return document_starts_.empty() ? k : document_starts_[static_cast<size_t>(k)];
}

int64_t IndexedDataset::document_of(int64_t sequence) const {
  if (document_starts_.empty()) return sequence;
  const auto after = std::upper_bound(document_starts_.begin(), document_starts_.end(), sequence);
  return after - document_starts_.begin() - 1;
}

void IndexedDataset::read(int64_t sequence, int64_t first, std::span<int32_t> out) const {
  require(sequence >= 0 && sequence < lengths_.count() && first >= 0 &&
              first + std::ssize(out) <= lengths_[sequence],
          ExitCode::internal, "{}: tokens {} to {} of sequence {}", prefix_, first,
          first + std::ssize(out), sequence);
  read_across(lengths_.start(sequence) + first, out);
}

void IndexedDataset::read_across(int64_t position, std::span<int32_t> out) const {
  require(position >= 0 && std::ssize(out) <= tokens() - position, ExitCode::internal,
          "{}: tokens {} to {} of {}", prefix_, position, position + std::ssize(out), tokens());
  std::array<std::byte, kChunk> raw;
  const size_t item = static_cast<size_t>(token_bytes(type_));
  while (!out.empty()) {
    const size_t n = std::min(out.size(), kChunk / item);
    bin_->read_at(position * static_cast<int64_t>(item), std::span(raw).first(n * item));
    const std::span<int32_t> part = out.first(n);
    switch (type_) {
      case TokenType::u8:
        convert<uint8_t>(raw.data(), position, part);
        break;
      case TokenType::i8:
        convert<int8_t>(raw.data(), position, part);
        break;
      case TokenType::i16:
        convert<int16_t>(raw.data(), position, part);
        break;
      case TokenType::i32:
        convert<int32_t>(raw.data(), position, part);
        break;
      case TokenType::i64:
        convert<int64_t>(raw.data(), position, part);
        break;
      case TokenType::u16:
        convert<uint16_t>(raw.data(), position, part);
        break;
    }
    out = out.subspan(n);
    position += static_cast<int64_t>(n);
  }
}

// Widens or narrows to 32 bits; a negative id is a huge unsigned one, so that one compare finds
// both.
template <class T>
void IndexedDataset::convert(const std::byte* raw, int64_t position, std::span<int32_t> out) const {
  const auto at = [raw](size_t i) {
    T value;
    std::memcpy(&value, raw + i * sizeof(T), sizeof(T));
    return static_cast<int64_t>(value);
  };
  const uint64_t limit = static_cast<uint64_t>(limit_);
  bool inside = true;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t id = at(i);
    inside &= static_cast<uint64_t>(id) < limit;
    out[i] = static_cast<int32_t>(id);
  }
  if (inside) [[likely]]
    return;
  size_t i = 0;
  while (static_cast<uint64_t>(at(i)) < limit) ++i;
  refuse_token(at(i), position + static_cast<int64_t>(i));
}

void IndexedDataset::refuse_token(int64_t id, int64_t position) const {
  const int64_t sequence = lengths_.find(position);
  const int64_t document = document_of(sequence);
  const int64_t in_document = position - lengths_.start(document_start(document));
  fail(
      ExitCode::bad_data,
      "{}: byte {}: token id {} at position {} of document {} is outside the vocabulary of {}: the "
      "data were made with another tokenizer, or the model's vocabulary is too small",
      bin_->path(), position * token_bytes(type_), id, in_document, document, limit_);
}

DatasetReport verify_dataset(const std::string& prefix, int64_t vocab,
                             const std::function<void(int64_t, int64_t)>& progress) {
  const IndexedDataset dataset(prefix, vocab);
  DatasetReport report;
  report.type = dataset.type();
  report.sequences = dataset.sequences().count();
  report.documents = dataset.documents();
  report.tokens = dataset.tokens();
  for (int32_t length : dataset.sequences().values())
    report.longest_sequence = std::max<int64_t>(report.longest_sequence, length);
  for (int64_t k = 0; k < dataset.documents(); ++k)
    if (dataset.document_start(k) == dataset.document_start(k + 1)) ++report.empty_documents;
  std::vector<int32_t> chunk(static_cast<size_t>(std::min<int64_t>(report.tokens, kMiB)));
  for (int64_t done = 0; done < report.tokens; done += std::ssize(chunk)) {
    if (report.tokens - done < std::ssize(chunk))
      chunk.resize(static_cast<size_t>(report.tokens - done));
    dataset.read_across(done, chunk);
    const int64_t largest = *std::max_element(chunk.begin(), chunk.end());
    report.largest_id = std::max(report.largest_id, largest);
    if (progress) progress(done + std::ssize(chunk), report.tokens);
  }
  return report;
}

}  // namespace trireme
