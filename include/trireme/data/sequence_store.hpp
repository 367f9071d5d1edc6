// Where tokens live: a row of sequences (pieces of documents), each a run of token ids.
//
// `SequenceLengths` knows how long every sequence is and where it starts in the concatenation of
// all; `SequenceStore` is the interface that readers (files, mock data) implement. All positions
// and totals are 64-bit token counts. Everything is const after construction and safe to call from
// many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/index_memory.hpp"

namespace trireme {

// Lengths in tokens, with the start of every 64th sequence kept: 4.1 bytes of memory a sequence.
class SequenceLengths {
 public:
  SequenceLengths() = default;
  // Lengths must be >= 0 (the caller has checked them). Throws Error(bad_data) if the sum
  // overflows.
  explicit SequenceLengths(const std::vector<int32_t>& lengths);
  // `lengths` lies in `memory`, and so will the starts.
  SequenceLengths(std::span<const int32_t> lengths, std::shared_ptr<IndexMemory> memory);

  int64_t count() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t tokens() const { return block_starts_.empty() ? 0 : block_starts_.back(); }
  int32_t operator[](int64_t i) const { return lengths_[static_cast<size_t>(i)]; }
  std::span<const int32_t> values() const { return lengths_; }
  // Tokens before sequence i, 0 <= i <= count().
  int64_t start(int64_t i) const;
  // The sequence that holds token `position` of the concatenation, 0 <= position < tokens().
  int64_t find(int64_t position) const;

 private:
  std::shared_ptr<IndexMemory> memory_;
  std::span<const int32_t> lengths_;
  std::span<const int64_t> block_starts_;  // and, last, the tokens of all
};

class SequenceStore {
 public:
  virtual ~SequenceStore() = default;
  virtual const SequenceLengths& sequences() const = 0;
  // Tokens [first, first + out.size()) of one sequence. Throws Error(internal) when out of range,
  // Error(bad_data) for an id that is negative or outside the vocabulary, naming id and place.
  virtual void read(int64_t sequence, int64_t first, std::span<int32_t> out) const = 0;
  // Tokens [position, position + out.size()) of the concatenation of all sequences.
  virtual void read_across(int64_t position, std::span<int32_t> out) const;
  virtual std::string name() const = 0;  // for messages
};

}  // namespace trireme
