// Megatron's mock data: 100,000 virtual sequences of 1 to 4095 tokens that count 1, 2, 3, ... and
// end with the end-of-document id. Nothing is stored but the lengths. It tests speed, not learning.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/data/sequence_store.hpp"

namespace trireme {

class MockDataset : public SequenceStore {
 public:
  static constexpr int64_t kSequences = 100000;
  static constexpr int32_t kLongest = 4095;

  // Tokens are taken modulo `vocab` (> 0); the end-of-document id is vocab - 1.
  explicit MockDataset(int64_t vocab);
  const SequenceLengths& sequences() const override { return lengths_; }
  void read(int64_t sequence, int64_t first, std::span<int32_t> out) const override;
  std::string name() const override { return "mock data"; }

 private:
  int64_t vocab_;
  SequenceLengths lengths_;
};

}  // namespace trireme
