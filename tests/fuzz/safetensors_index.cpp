// Any bytes as model.safetensors.index.json, beside one file that is right.
#include "fuzz/fuzz_input.hpp"
#include "trireme/io/foreign_model.hpp"
#include "trireme/io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  static const bool written = [] {
    const SafetensorsLayout layout = lay_out_safetensors({{"a", "F32", {2}, 0, 0}});
    scratch.put("model-00001-of-00001.safetensors", layout.start + std::string(8, '\0'));
    return true;
  }();
  if (!written) return 0;
  const std::string path = scratch.put("model.safetensors.index.json", fuzz::text_of(data, size));
  return fuzz::read_or_refuse(
      [&] { ForeignModel::open_hugging_face(std::filesystem::path(path).parent_path()); });
}
