// Writes Megatron IndexedDatasets, and merges them.
//
// Promise: the output is complete or absent. Both files are written under temporary names beside
// the output and renamed by `commit`, the index last; without a commit nothing of the new output
// remains. An older pair of the same name stays until `commit`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/indexed_dataset.hpp"

namespace trireme {

class OutputFile;

// Streams tokens; keeps 4 bytes a sequence and 8 bytes a document in memory until `commit`.
// Errors: bad_data for an id that the type cannot hold, io for a full disk or a failed write,
// internal for calls out of order.
class IndexedDatasetWriter {
 public:
  struct Options {
    std::string prefix;
    TokenType type = TokenType::i32;
    // A longer sequence goes on in the next one, in the same document (lengths are 32-bit).
    int64_t longest_sequence = INT32_MAX;
    bool durable =
        true;  // commit flushes to disk; false for files that are soon taken in elsewhere
  };
  explicit IndexedDatasetWriter(Options options);
  ~IndexedDatasetWriter();  // removes the temporary files if there was no commit

  // Adds tokens to the current sequence.
  void append(std::span<const int32_t> tokens);
  void end_sequence();
  // Ends the open sequence if it holds tokens, then the document (which may be empty).
  void end_document();
  // A whole document: tokens cut into sequences of the given lengths (their sum must be the tokens'
  // number).
  void add_document(std::span<const int32_t> tokens, std::span<const int32_t> lengths);
  // Adds every sequence and document of a dataset. Its ids are copied byte by byte (holes of sparse
  // files stay holes) where the types are equal, else converted with a check.
  void add_dataset(const IndexedDataset& dataset);
  // The same for some documents of a dataset of the same type, whose ids another process has
  // written, or will write before commit, at their place in the file `temporary_tokens`.
  void add_index_of(const IndexedDataset& dataset, int64_t first_document, int64_t documents);
  const std::string& temporary_tokens() const;
  void flush();  // what was added is in that file
  // Flushes to disk and renames. Open tokens without end_document are an Error(internal).
  void commit();

  int64_t tokens() const { return tokens_; }
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t documents() const { return static_cast<int64_t>(document_starts_.size()) - 1; }

 private:
  void write_index();
  void add_lengths(const IndexedDataset& dataset, int64_t first_document, int64_t documents);
  void put_tokens(std::span<const int32_t> tokens);
  [[noreturn]] void refuse_token(std::span<const int32_t> tokens) const;

  Options options_;
  std::unique_ptr<OutputFile> bin_, idx_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> document_starts_{0};
  std::vector<std::byte> packed_;  // tokens in the file's type, on their way out
  int64_t tokens_ = 0;
  int64_t open_tokens_ = 0;  // of the sequence not yet ended
};

// Concatenates datasets in the given order: tokens one after the other, documents of each shifted
// by the sequences before it. Equal to building the set in one go. Inputs of different token types
// are refused (bad_data) unless `type` says what to convert to.
void merge_datasets(std::span<const std::string> inputs, const std::string& output,
                    std::optional<TokenType> type = std::nullopt);

}  // namespace trireme
