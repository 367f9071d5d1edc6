// Counts of pairs are kept up to date word by word; a heap holds candidates, some out of date.
#include "data/pair_learner.hpp"

#include <algorithm>
#include <queue>

namespace trireme {

void PairLearner::add(std::string_view word, int64_t count) {
  if (word.size() < 2) return;
  Word entry{{}, count};
  for (char c : word) entry.symbols.push_back(static_cast<unsigned char>(c));
  words_.push_back(std::move(entry));
}

void PairLearner::change(uint64_t key, int64_t by, uint32_t word, std::vector<uint64_t>& touched) {
  Pair& pair = pairs_[key];
  pair.count += by;
  if (by > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
  touched.push_back(key);
}

void PairLearner::merge_in(uint32_t index, uint64_t key, int32_t id,
                           std::vector<uint64_t>& touched) {
  Word& word = words_[index];
  const auto holds = [&](const std::vector<int32_t>& s) {
    for (size_t i = 0; i + 1 < s.size(); ++i)
      if (key_of(s[i], s[i + 1]) == key) return true;
    return false;
  };
  if (!holds(word.symbols)) return;
  std::vector<int32_t> merged;
  for (size_t i = 0; i < word.symbols.size(); ++i) {
    const bool here =
        i + 1 < word.symbols.size() && key_of(word.symbols[i], word.symbols[i + 1]) == key;
    merged.push_back(here ? id : word.symbols[i]);
    i += here ? 1 : 0;
  }
  const auto count_all = [&](const std::vector<int32_t>& s, int64_t by) {
    for (size_t i = 0; i + 1 < s.size(); ++i) change(key_of(s[i], s[i + 1]), by, index, touched);
  };
  count_all(word.symbols, -word.count);
  count_all(merged, word.count);
  word.symbols = std::move(merged);
}

std::vector<std::pair<int32_t, int32_t>> PairLearner::learn(int64_t most) {
  std::vector<uint64_t> touched;
  for (uint32_t w = 0; w < words_.size(); ++w)
    for (size_t i = 0; i + 1 < words_[w].symbols.size(); ++i)
      change(key_of(words_[w].symbols[i], words_[w].symbols[i + 1]), words_[w].count, w, touched);
  std::priority_queue<Candidate> queue;
  const auto put_back = [&] {
    std::ranges::sort(touched);
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (uint64_t key : touched)
      if (const int64_t count = pairs_[key].count; count > 1) queue.push({count, key});
    touched.clear();
  };
  put_back();
  std::vector<std::pair<int32_t, int32_t>> merges;
  while (std::ssize(merges) < most && !queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    if (pairs_[best.key].count != best.count) continue;  // a newer entry stands for it
    const int32_t id = 256 + static_cast<int32_t>(merges.size());
    merges.emplace_back(static_cast<int32_t>(best.key >> 32),
                        static_cast<int32_t>(best.key & 0xFFFFFFFFu));
    const std::vector<uint32_t> where = std::move(pairs_[best.key].words);
    for (uint32_t word : where) merge_in(word, best.key, id, touched);
    pairs_.erase(best.key);
    std::erase(touched, best.key);
    put_back();
  }
  return merges;
}

}  // namespace trireme
