// Megatron's IndexedDataset: token ids in PREFIX.bin, sequence and document bounds in PREFIX.idx.
//
// Promises: a file that is cut, extended, inconsistent or of another format is refused when it is
// opened, with the file and the byte offset of the first fault; afterwards every read is exact.
// Offsets, token totals and counts are 64-bit. `.bin` is read with pread: a file that shrinks later
// is a named error.
//
// .idx (little-endian, unaligned): "MMIDIDX\0\0", u64 version 1, u8 type code, u64 S, u64 D,
// i32 length[S] in tokens, i64 pointer[S] in bytes, i64 document[D] (first sequence of each
// document, then S), and for multimodal sets i8 mode[S], which is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/data/sequence_store.hpp"

namespace trireme {

class InputFile;

// Values are the type codes of the format. Codes 6 and 7 (floating point) cannot hold tokens.
enum class TokenType : uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };

int64_t token_bytes(TokenType type);
const char* name_of(TokenType type);
int64_t largest_token(TokenType type);  // no more than 2^31 - 1: ids are 32-bit in memory
// Megatron's rule: u16 below a vocabulary of 65,500, else i32.
TokenType token_type_for(int64_t vocab);

// A dataset's prefix from the name of either of its files, or from the prefix itself.
std::string dataset_prefix(std::string path);

class IndexedDataset : public SequenceStore {
 public:
  // Opens PREFIX.idx and PREFIX.bin and checks the whole index (20 bytes a sequence are read, 4.1
  // kept in `memory`; 8 more a document where documents have several sequences). In memory that
  // another process built nothing but the header is read: the check was made there. `vocab` > 0 is
  // the limit for ids. Errors: no_input (missing or unreadable), bad_data (anything wrong inside).
  explicit IndexedDataset(std::string prefix, int64_t vocab = 0,
                          std::shared_ptr<IndexMemory> memory = nullptr);
  ~IndexedDataset() override;

  const SequenceLengths& sequences() const override { return lengths_; }
  void read(int64_t sequence, int64_t first, std::span<int32_t> out) const override;
  void read_across(int64_t position, std::span<int32_t> out) const override;
  std::string name() const override { return prefix_; }

  TokenType type() const { return type_; }
  int64_t tokens() const { return lengths_.tokens(); }
  int64_t documents() const { return documents_; }
  // First sequence of document k, 0 <= k <= documents(); the last value is the number of sequences.
  int64_t document_start(int64_t k) const;
  // The document that holds a sequence.
  int64_t document_of(int64_t sequence) const;
  const InputFile& bin() const { return *bin_; }

 private:
  void read_index();
  void open_tokens();
  void read_lengths(const InputFile& idx, std::span<int32_t> lengths);
  void check_pointers(const InputFile& idx) const;
  // Checks the documents, keeps them where `starts` has room, and says whether document k is
  // sequence k for every k.
  bool read_documents(const InputFile& idx, int64_t entries, std::span<int64_t> starts) const;
  template <class T>
  void convert(const std::byte* raw, int64_t position, std::span<int32_t> out) const;
  [[noreturn]] void refuse_token(int64_t id, int64_t position) const;

  std::string prefix_;
  int64_t limit_;  // ids are below this
  TokenType type_ = TokenType::i32;
  SequenceLengths lengths_;
  int64_t documents_ = 0;
  std::shared_ptr<IndexMemory> memory_;
  std::span<const int64_t> document_starts_;  // empty where document k is sequence k
  std::unique_ptr<InputFile> bin_;
};

// Result of reading every token of a dataset.
struct DatasetReport {
  TokenType type = TokenType::i32;
  int64_t sequences = 0, documents = 0, empty_documents = 0, tokens = 0;
  int64_t longest_sequence = 0;
  int64_t largest_id = -1;  // -1: no tokens
};

// Opens the dataset and reads all of it; every id must be in [0, vocab) (`vocab` 0: any
// non-negative id). Throws the first fault, as `IndexedDataset` does. `progress(tokens done,
// tokens)` may be empty.
DatasetReport verify_dataset(const std::string& prefix, int64_t vocab,
                             const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace trireme
