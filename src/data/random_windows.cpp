// Window starts by multiply-and-reject on Philox words.
#include "trireme/data/random_windows.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/random.hpp"

namespace trireme {
namespace {

__extension__ using Word128 = unsigned __int128;

constexpr uint32_t kPurpose = 0x64617461u;  // keeps these counters apart from other uses of a key

uint64_t word_at(uint64_t key, uint64_t index, uint32_t attempt) {
  const PhiloxWords r = philox(static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                               attempt, kPurpose, key);
  return (static_cast<uint64_t>(r.x) << 32) | r.y;
}

}  // namespace

uint64_t uniform_below(uint64_t bound, uint64_t key, uint64_t index) {
  uint32_t attempt = 0;
  Word128 product = Word128{word_at(key, index, attempt)} * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = (uint64_t{0} - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold)
      product = Word128{word_at(key, index, ++attempt)} * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

RandomWindows::RandomWindows(SplitRange range, int64_t sequence, uint64_t seed, DataSplit split)
    : range_(range),
      choices_(static_cast<uint64_t>(range.size() - sequence)),
      key_(stream_key(seed, split == DataSplit::train        ? "data.windows.train"
                            : split == DataSplit::validation ? "data.windows.validation"
                                                             : "data.windows.test")) {
  require(sequence > 0 && range.size() > sequence, ExitCode::internal,
          "windows of {} tokens in a range of {}", sequence + 1, range.size());
}

int64_t RandomWindows::start(int64_t sample) const {
  return range_.first +
         static_cast<int64_t>(uniform_below(choices_, key_, static_cast<uint64_t>(sample)));
}

}  // namespace trireme
