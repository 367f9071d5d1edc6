// A small state with awkward sizes, cut over ranks in many ways, for tests of checkpoints.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/random.hpp"
#include "trireme/base/tensor.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/io/checkpoint.hpp"

namespace trireme::test {

struct StateTensor {
  std::string name;
  Shape whole;
  DType dtype = DType::f32;
};

// Tensors of 1, 3 and 6 elements, an empty one, three and four dimensions, both sides of the
// alignment threshold, both float types.
inline std::vector<StateTensor> awkward_state() {
  return {{"weights/bias", {3}},
          {"weights/one", {1}},
          {"weights/six", {6}, DType::bf16},
          {"weights/none", {0, 4}},
          {"weights/matrix", {301, 131}, DType::bf16},
          {"weights/positions", {5, 1}, DType::i32},
          {"master/matrix", {301, 131}},
          {"adam_m/cube", {3, 5, 7, 2}},
          {"adam_v/slab", {2, 3, 20011}},
          {"adam_v/row", {1, 50021}}};
}

// The bits of an element: a finite number that depends on name, index and step.
inline uint32_t element_bits(const StateTensor& tensor, int64_t index, int64_t step) {
  const uint64_t word = mix64(name_hash(tensor.name) + static_cast<uint64_t>(index) * 977 +
                              static_cast<uint64_t>(step) * 7919);
  const auto value = static_cast<float>(static_cast<int64_t>(word % 200001) - 100000) / 4096.0f;
  if (tensor.dtype == DType::bf16) return to_bf16(value);
  if (tensor.dtype == DType::i32) return static_cast<uint32_t>(word);
  return __builtin_bit_cast(uint32_t, value);
}

enum class Cut { rows, flat, columns, one_rank_each, reversed, last_rank_only };
inline const std::vector<Cut>& all_cuts() {
  static const std::vector<Cut> cuts = {Cut::rows,          Cut::flat,     Cut::columns,
                                        Cut::one_rank_each, Cut::reversed, Cut::last_rank_only};
  return cuts;
}

// Slices with the memory they point to.
struct HeldSlices {
  std::vector<std::vector<std::byte>> memory;
  std::vector<GlobalSlice> slices;

  void add(const StateTensor& tensor, const Shape& origin, const Shape& extent) {
    if (extent.elements() < 0) return;
    memory.emplace_back(static_cast<size_t>(extent.elements()) * size_of(tensor.dtype));
    slices.push_back(
        {tensor.name, tensor.whole, origin, {memory.back().data(), extent, tensor.dtype}});
  }
};

inline Shape shape_like(const Shape& whole, std::initializer_list<int64_t> extents) {
  Shape shape = whole;
  int d = 0;
  for (const int64_t extent : extents) shape.extent[static_cast<size_t>(d++)] = extent;
  return shape;
}

// Elements [first, last) of the flattened tensor as rectangles: rest of a row, whole rows, start of
// one.
inline void add_flat(HeldSlices& held, const StateTensor& tensor, int64_t first, int64_t last) {
  const Shape& whole = tensor.whole;
  if (whole.dims == 1) {
    held.add(tensor, {first}, {last - first});
    return;
  }
  // Only matrices are cut within rows; other tensors by whole rows.
  const int64_t width = whole.row_elements();
  if (whole.dims > 2) {
    const int64_t a = (first + width - 1) / width, b = (last + width - 1) / width;
    Shape origin = whole, extent = whole;
    origin.extent = {};
    origin.extent[0] = a;
    extent.extent[0] = b - a;
    held.add(tensor, origin, extent);
    return;
  }
  while (first < last) {
    const int64_t row = first / width, column = first % width;
    if (column == 0 && last - first >= width) {
      const int64_t rows = (last - first) / width;
      held.add(tensor, {row, 0}, {rows, width});
      first += rows * width;
    } else {
      const int64_t count = std::min(last - first, width - column);
      held.add(tensor, {row, column}, {1, count});
      first += count;
    }
  }
}

// Extent and origin of the whole along every dimension but `d`, of which [first, last).
inline void add_band(HeldSlices& held, const StateTensor& tensor, int d, int64_t first,
                     int64_t last) {
  Shape origin = tensor.whole, extent = tensor.whole;
  origin.extent = {};
  origin.extent[static_cast<size_t>(d)] = first;
  extent.extent[static_cast<size_t>(d)] = last - first;
  held.add(tensor, origin, extent);
}

// The piece of `rank` of `ranks` under a cut, memory zeroed.
inline HeldSlices cut_state(const std::vector<StateTensor>& state, Cut cut, int rank, int ranks) {
  HeldSlices held;
  held.memory.reserve(state.size() * 1000);
  for (size_t i = 0; i < state.size(); ++i) {
    const StateTensor& tensor = state[i];
    const int r = cut == Cut::reversed ? ranks - 1 - rank : rank;
    const int64_t n = tensor.whole.elements();
    const int last_dim = tensor.whole.dims - 1;
    const auto share = [&](int64_t count, int which) { return count * which / ranks; };
    if (cut == Cut::rows || cut == Cut::reversed)
      add_band(held, tensor, 0, share(tensor.whole[0], r), share(tensor.whole[0], r + 1));
    if (cut == Cut::columns)
      add_band(held, tensor, last_dim, share(tensor.whole[last_dim], r),
               share(tensor.whole[last_dim], r + 1));
    if (cut == Cut::flat && n > 0) add_flat(held, tensor, share(n, r), share(n, r + 1));
    const bool mine = cut == Cut::one_rank_each ? static_cast<int>(i) % ranks == rank
                                                : cut == Cut::last_rank_only && rank == ranks - 1;
    if (mine) add_band(held, tensor, 0, 0, tensor.whole[0]);
  }
  return held;
}

// Calls use(element of the whole tensor, pointer to it) for each element of a slice.
template <class Use>
void for_each_element(const GlobalSlice& slice, Use&& use) {
  const Shape& extent = slice.local.shape;
  for (int64_t i = 0; i < slice.local.elements(); ++i) {
    int64_t rest = i, index = 0, scale = 1;
    for (int d = extent.dims - 1; d >= 0; --d) {
      index += (slice.origin[d] + rest % extent[d]) * scale;
      rest /= extent[d];
      scale *= slice.whole[d];
    }
    use(index, slice.local.data + static_cast<size_t>(i) * size_of(slice.local.dtype));
  }
}

inline const StateTensor& tensor_named(const std::vector<StateTensor>& state,
                                       const std::string& name) {
  for (const StateTensor& tensor : state)
    if (tensor.name == name) return tensor;
  ADD_FAILURE() << name;
  return state.front();
}

inline void fill(const std::vector<StateTensor>& state, HeldSlices& held, int64_t step) {
  for (const GlobalSlice& slice : held.slices) {
    const StateTensor& tensor = tensor_named(state, slice.name);
    for_each_element(slice, [&](int64_t index, std::byte* place) {
      const uint32_t bits = element_bits(tensor, index, step);
      std::memcpy(place, &bits, size_of(tensor.dtype));
    });
  }
}

// Elements that do not hold the step's bits.
inline int64_t wrong_elements(const std::vector<StateTensor>& state, const HeldSlices& held,
                              int64_t step) {
  int64_t wrong = 0;
  for (const GlobalSlice& slice : held.slices) {
    const StateTensor& tensor = tensor_named(state, slice.name);
    for_each_element(slice, [&](int64_t index, const std::byte* place) {
      const uint32_t bits = element_bits(tensor, index, step);
      if (std::memcmp(place, &bits, size_of(tensor.dtype)) != 0) ++wrong;
    });
  }
  return wrong;
}

inline CheckpointHeader header_at(int64_t step) {
  CheckpointHeader header;
  header.step = step;
  header.consumed_samples = step * 12;
  header.consumed_tokens = step * 12 * 64;
  header.updates = step - 1;
  header.update_samples = (step - 1) * 12;
  header.seed = 0xfedcba9876543210ull;
  header.model_section = "family = gpt2\nlayers = 3\n";
  header.optimizer_section = "zero = 1\n";
  header.data_section = "kind = mock\n";
  header.schedule_section = "kind = constant\nmaximum = 0.001\n";
  return header;
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
}

// A directory of all ranks that goes when the test ends. Collective.
class SharedDirectory {
 public:
  explicit SharedDirectory(const Communicator& world) : world_(world) {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-test-XXXXXX").string();
    if (world.rank() == 0 && mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no directory";
    path_ = world.broadcast(name, 0);
  }
  ~SharedDirectory() {
    world_.barrier();
    std::error_code ignored;
    if (world_.rank() == 0) std::filesystem::remove_all(path_, ignored);
    world_.barrier();
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  const Communicator& world_;
  std::filesystem::path path_;
};

// The Error that `work` throws, which must have `code`; its text.
template <class Work>
std::string error_text(ExitCode code, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

}  // namespace trireme::test
