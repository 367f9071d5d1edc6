// Two ways to the same result: short pieces look for the best pair again after each merge, long
// ones keep the pairs in a heap.
#include "data/bpe_merge.hpp"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

constexpr size_t kShort = 40;  // symbols

// In place on symbols[0, n); returns how many are left.
size_t merge_short(const MergeTable& merges, int32_t* symbols, size_t n) {
  std::array<Merge, kShort> pairs;  // of symbols i and i + 1
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == Merge::kNever) break;
    symbols[best] = pairs[best].id;
    std::copy(symbols + best + 2, symbols + n, symbols + best + 1);
    std::copy(pairs.begin() + static_cast<ptrdiff_t>(best) + 1,
              pairs.begin() + static_cast<ptrdiff_t>(n) - 1,
              pairs.begin() + static_cast<ptrdiff_t>(best));
    --n;
    if (best > 0) pairs[best - 1] = merges.find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = merges.find(symbols[best], symbols[best + 1]);
  }
  return n;
}

// A linked list of symbols and a heap of the pairs that merge.
class LongMerge {
 public:
  LongMerge(const MergeTable& merges, int32_t* symbols, size_t n)
      : merges_(merges), symbols_(symbols), n_(static_cast<uint32_t>(n)), before_(n), after_(n) {
    for (uint32_t i = 0; i < n_; ++i) {
      before_[i] = i == 0 ? n_ : i - 1;
      after_[i] = i + 1;
    }
    for (uint32_t i = 0; i + 1 < n_; ++i) {
      const Merge merge = merges_.find(symbols_[i], symbols_[i + 1]);
      if (merge.rank != Merge::kNever) heap_.push_back({merge, i});
    }
    std::make_heap(heap_.begin(), heap_.end(), later);
  }

  size_t run() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Candidate next = heap_.back();
      heap_.pop_back();
      if (still_there(next)) apply(next);
    }
    size_t left = 0;
    for (uint32_t i = 0; i < n_; i = after_[i]) symbols_[left++] = symbols_[i];
    return left;
  }

 private:
  struct Candidate {
    Merge merge;
    uint32_t place;
  };
  static bool later(const Candidate& a, const Candidate& b) {
    return a.merge.rank != b.merge.rank ? a.merge.rank > b.merge.rank : a.place > b.place;
  }

  // A symbol that was merged into the one before it has the id -1.
  bool still_there(const Candidate& c) const {
    if (symbols_[c.place] < 0 || after_[c.place] >= n_) return false;
    const Merge now = merges_.find(symbols_[c.place], symbols_[after_[c.place]]);
    return now.rank == c.merge.rank && now.id == c.merge.id;
  }

  void apply(const Candidate& c) {
    const uint32_t absorbed = after_[c.place];
    symbols_[c.place] = c.merge.id;
    symbols_[absorbed] = -1;
    after_[c.place] = after_[absorbed];
    if (after_[c.place] < n_) before_[after_[c.place]] = c.place;
    if (before_[c.place] < n_) push(before_[c.place]);
    if (after_[c.place] < n_) push(c.place);
  }

  void push(uint32_t place) {
    const Merge merge = merges_.find(symbols_[place], symbols_[after_[place]]);
    if (merge.rank == Merge::kNever) return;
    heap_.push_back({merge, place});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  const MergeTable& merges_;
  int32_t* symbols_;
  uint32_t n_;
  std::vector<uint32_t> before_, after_;  // n_: none
  std::vector<Candidate> heap_;
};

}  // namespace

void merge_symbols(const MergeTable& merges, size_t first, std::vector<int32_t>& symbols) {
  const size_t n = symbols.size() - first;
  int32_t* begin = symbols.data() + first;
  symbols.resize(first +
                 (n <= kShort ? merge_short(merges, begin, n) : LongMerge(merges, begin, n).run()));
}

}  // namespace trireme
