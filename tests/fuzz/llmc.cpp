// Any bytes as a token file of llm.c, read to its end.
#include <vector>

#include "fuzz/fuzz_input.hpp"
#include "trireme/data/llmc_dataset.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const std::string path = scratch.put("shard.bin", fuzz::text_of(data, size));
  return fuzz::read_or_refuse([&] {
    names_llmc_files(path);
    const LlmcDataset dataset(path, 1000);
    std::vector<int32_t> tokens(static_cast<size_t>(dataset.sequences().tokens()));
    dataset.read_across(0, tokens);
  });
}
