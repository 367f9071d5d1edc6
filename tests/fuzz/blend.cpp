// Any bytes as the file of a blend, and as the text of one in a deck.
#include "trireme/data/blend.hpp"
#include "fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const std::string_view text = fuzz::text_of(data, size);
  const std::string path = scratch.put("blend", text);
  const auto in_deck = [](auto&& call) {  // a deck's fault has a code of its own
    try {
      call();
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_config) throw;
    }
  };
  fuzz::read_or_refuse([&] { in_deck([&] { read_blend("@" + path); }); });
  in_deck([&] { parse_blend(text); });
  in_deck([&] { parse_named_blends(text); });
  return 0;
}
