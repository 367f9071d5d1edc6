// Any bytes as model.safetensors; what is accepted must read in full, and nothing beyond the file.
#include <vector>

#include "fuzz/fuzz_input.hpp"
#include "trireme/io/foreign_model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const fuzz::Scratch scratch;
  const std::string path = scratch.put("model.safetensors", fuzz::text_of(data, size));
  return fuzz::read_or_refuse([&] {
    const ForeignModel model =
        ForeignModel::open_hugging_face(std::filesystem::path(path).parent_path());
    for (const ForeignTensor& tensor : model.tensors()) {
      if (!tensor.type) continue;
      size_t elements = 1;
      for (const int64_t extent : tensor.shape) elements *= static_cast<size_t>(extent);
      std::vector<std::byte> bytes(elements * size_of(*tensor.type));
      if (bytes.size() > size) std::abort();
      model.read(tensor, 0, bytes);
    }
  });
}
