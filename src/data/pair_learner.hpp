// Finds the merges of a BPE model from counted words.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme {

class PairLearner {
 public:
  // Symbols are bytes, 0 ... 255; a word may be given once, with how often it comes.
  void add(std::string_view word, int64_t count);

  // Up to `most` merges as pairs of ids; merge k makes the id 256 + k. Ends earlier where no pair
  // comes twice.
  std::vector<std::pair<int32_t, int32_t>> learn(int64_t most);

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count;
  };
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> words;  // where it may be; some more than once or no longer
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    // Least to best: more often, then smaller ids.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  void change(uint64_t key, int64_t by, uint32_t word, std::vector<uint64_t>& touched);
  void merge_in(uint32_t word, uint64_t key, int32_t id, std::vector<uint64_t>& touched);

  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
};

}  // namespace trireme
