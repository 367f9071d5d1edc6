// Prefix sums in blocks of 64 sequences, and reading over sequence borders.
#include "trireme/data/sequence_store.hpp"

#include <algorithm>

#include "trireme/base/checked.hpp"

namespace trireme {
namespace {
constexpr int64_t kBlock = 64;
}  // namespace

SequenceLengths::SequenceLengths(std::vector<int32_t> lengths) : lengths_(std::move(lengths)) {
  block_starts_.reserve(lengths_.size() / kBlock + 1);
  for (int64_t i = 0; i < count(); ++i) {
    if (i % kBlock == 0) block_starts_.push_back(tokens_);
    tokens_ = checked_add(tokens_, (*this)[i]);
  }
}

int64_t SequenceLengths::start(int64_t i) const {
  if (i == count()) return tokens_;
  const int64_t block = i / kBlock;
  int64_t sum = block_starts_[static_cast<size_t>(block)];
  for (int64_t k = block * kBlock; k < i; ++k) sum += (*this)[k];
  return sum;
}

int64_t SequenceLengths::find(int64_t position) const {
  require(position >= 0 && position < tokens_, ExitCode::internal, "token {} of {}", position,
          tokens_);
  const auto after = std::upper_bound(block_starts_.begin(), block_starts_.end(), position);
  const int64_t block = after - block_starts_.begin() - 1;
  int64_t end = block_starts_[static_cast<size_t>(block)];
  for (int64_t i = block * kBlock;; ++i) {
    end += (*this)[i];
    if (position < end) return i;
  }
}

void SequenceStore::read_across(int64_t position, std::span<int32_t> out) const {
  const SequenceLengths& lengths = sequences();
  require(position >= 0 && static_cast<int64_t>(out.size()) <= lengths.tokens() - position,
          ExitCode::internal, "{}: tokens {} to {} of {}", name(), position,
          position + static_cast<int64_t>(out.size()), lengths.tokens());
  if (out.empty()) return;
  int64_t sequence = lengths.find(position);
  int64_t first = position - lengths.start(sequence);
  while (!out.empty()) {
    const int64_t n = std::min<int64_t>(lengths[sequence] - first, std::ssize(out));
    if (n > 0) read(sequence, first, out.first(static_cast<size_t>(n)));
    out = out.subspan(static_cast<size_t>(n));
    ++sequence;
    first = 0;
  }
}

}  // namespace trireme
