// Mock sequences are computed when they are read.
#include "trireme/data/mock_dataset.hpp"

#include "trireme/base/error.hpp"
#include "trireme/data/numpy_random.hpp"

namespace trireme {
namespace {

SequenceLengths mock_lengths() {
  NumpyGenerator random(0);
  std::vector<int32_t> lengths(static_cast<size_t>(MockDataset::kSequences));
  for (int32_t& length : lengths) length = random.integer(1, MockDataset::kLongest + 1);
  return SequenceLengths(lengths);
}

}  // namespace

MockDataset::MockDataset(int64_t vocab) : vocab_(vocab), lengths_(mock_lengths()) {
  require(vocab > 0 && vocab <= INT32_MAX, ExitCode::bad_config, "mock data of a vocabulary of {}",
          vocab);
}

void MockDataset::read(int64_t sequence, int64_t first, std::span<int32_t> out) const {
  require(sequence >= 0 && sequence < kSequences && first >= 0 &&
              first + std::ssize(out) <= lengths_[sequence],
          ExitCode::internal, "mock data: tokens {} to {} of sequence {}", first,
          first + std::ssize(out), sequence);
  for (int32_t& token : out) token = static_cast<int32_t>(++first % vocab_);
  if (first == lengths_[sequence] && !out.empty()) out.back() = static_cast<int32_t>(vocab_ - 1);
}

}  // namespace trireme
