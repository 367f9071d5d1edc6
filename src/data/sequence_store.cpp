// Prefix sums in blocks of 64 sequences, and reading over sequence borders.
#include "trireme/data/sequence_store.hpp"

#include <algorithm>

#include "trireme/base/checked.hpp"

namespace trireme {
namespace {
constexpr int64_t kBlock = 64;

std::span<const int32_t> copy_into(IndexMemory& memory, std::span<const int32_t> lengths) {
  const std::span<int32_t> copy = memory.take<int32_t>(std::ssize(lengths));
  std::ranges::copy(lengths, copy.begin());
  return copy;
}

}  // namespace

SequenceLengths::SequenceLengths(const std::vector<int32_t>& lengths)
    : SequenceLengths({}, std::make_shared<IndexMemory>()) {
  *this = SequenceLengths(copy_into(*memory_, lengths), memory_);
}

SequenceLengths::SequenceLengths(std::span<const int32_t> lengths,
                                 std::shared_ptr<IndexMemory> memory)
    : memory_(std::move(memory)), lengths_(lengths) {
  const std::span<int64_t> starts = memory_->take<int64_t>(ceil_div(count(), kBlock) + 1);
  block_starts_ = starts;
  if (memory_->built()) return;
  int64_t sum = 0;
  for (int64_t i = 0; i < count(); ++i) {
    if (i % kBlock == 0) starts[static_cast<size_t>(i / kBlock)] = sum;
    sum = checked_add(sum, (*this)[i]);
  }
  starts.back() = sum;
}

int64_t SequenceLengths::start(int64_t i) const {
  if (i == count()) return tokens();
  const int64_t block = i / kBlock;
  int64_t sum = block_starts_[static_cast<size_t>(block)];
  for (int64_t k = block * kBlock; k < i; ++k) sum += (*this)[k];
  return sum;
}

int64_t SequenceLengths::find(int64_t position) const {
  require(position >= 0 && position < tokens(), ExitCode::internal, "token {} of {}", position,
          tokens());
  const auto after = std::upper_bound(block_starts_.begin(), block_starts_.end() - 1, position);
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
