// Any bytes as a file of JSONL: tokenized with every line that is no document left out, then with
// such a line an error.
#include "fuzz/fuzz_input.hpp"
#include "trireme/data/tokenize_text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const ByteTokenizer tokenizer;
  TokenizeOptions options;
  options.inputs = {scratch.put("lines.jsonl", fuzz::text_of(data, size))};
  options.output = scratch.path("out");
  options.tokenizer = &tokenizer;
  options.longest_document = 4096;
  for (const BadLines policy : {BadLines::skip, BadLines::stop}) {
    options.bad_lines = policy;
    fuzz::read_or_refuse([&] {
      TokenizeWork work(options, {});
      work.take(0);
      while (work.advance(int64_t{1} << 20)) {
      }
    });
    if (std::filesystem::exists(options.output + ".bin")) std::abort();
  }
  return 0;
}
