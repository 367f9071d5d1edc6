// Rotary embedding on packed, strided heads, forward and back.
#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {
namespace parity_cases {

namespace {

std::vector<Output> run(Device& device, DType type, int64_t heads, int64_t size) {
  Memory memory(device);
  const int64_t rows = 45, width = heads * size;
  const TensorView packed = memory.uniform("x", {rows, 3 * width}, type);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < size / 2; ++i)
    frequencies.push_back(
        std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(size)));
  Rope call;
  call.x = Matrix(packed).columns(width, 2 * width);
  call.heads = heads;
  call.head_size = size;
  call.positions = memory.random_integers("positions", rows, 8192);
  call.frequencies = memory.floats(frequencies, {size / 2}, DType::f32);
  rope(memory.stream(), call);
  Output turned = memory.read("turned", packed);
  call.inverse = true;
  rope(memory.stream(), call);
  return {turned, memory.read("back", packed)};
}

}  // namespace

void rope_cases(Device& device, CaseList& list) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [heads, size] :
         {std::pair<int64_t, int64_t>{1, 2}, {3, 10}, {12, 64}, {32, 128}})
      list.push_back(
          {std::string("rope_") + name_of(type) + "_" + std::to_string(heads) + "x" +
               std::to_string(size),
           [&device, type, heads = heads, size = size] { return run(device, type, heads, size); }});
}

}  // namespace parity_cases
}  // namespace trireme::inline TRIREME_BACKEND
