// Any bytes as PREFIX.idx, beside a .bin of the size that the index asks for where that is small.
#include <algorithm>

#include "fuzz/fuzz_input.hpp"
#include "trireme/data/indexed_dataset.hpp"

namespace {

// Tokens that the lengths of a well-formed index sum up to; enough to make most of them open.
int64_t wanted_bytes(std::string_view idx) {
  const auto load = [&](size_t at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && at + i < idx.size(); ++i)
      value |= static_cast<uint64_t>(static_cast<uint8_t>(idx[at + i])) << (8 * i);
    return value;
  };
  if (idx.size() < 34) return 0;
  const uint64_t sequences = std::min<uint64_t>(load(18, 8), idx.size() / 4);
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < sequences; ++i) tokens += load(34 + 4 * i, 4);
  const uint64_t code = load(17, 1);
  const uint64_t width = code <= 2 ? 1 : code == 4 ? 4 : code == 5 ? 8 : 2;
  return static_cast<int64_t>(std::min<uint64_t>(tokens, 1 << 20) * width);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const std::string_view idx = fuzz::text_of(data, size);
  scratch.put("set.idx", idx);
  scratch.put("set.bin", "");
  if (::truncate(scratch.path("set.bin").c_str(), wanted_bytes(idx)) != 0) std::abort();
  return fuzz::read_or_refuse([&] { verify_dataset(scratch.path("set"), 0); });
}
