// Any bytes as a compressed input, unpacked to its end or to 8 MiB.
#include <vector>

#include "data/byte_source.hpp"
#include "fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const std::string path = scratch.put("packed", fuzz::text_of(data, size));
  return fuzz::read_or_refuse([&] {
    packing_of(path);
    const auto source = open_zstd(open_file(path, 0), path);
    std::vector<char> chunk(1000 + size % 7);
    size_t all = 0;
    for (size_t n = 1; n > 0 && all < (size_t{8} << 20); all += n) n = source->read(chunk);
  });
}
