#include "app/bench_data.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "trireme/base/checked.hpp"
#include "trireme/base/random.hpp"

namespace trireme::app {
namespace {

constexpr int64_t kPeriod = 1'000'003;
constexpr int64_t kPieceElements = int64_t{1} << 23;
// Left free on the device: work memory of the operations, other programs.
constexpr size_t kSpareBytes = size_t{512} << 20;

std::vector<std::byte> encode(std::span<const float> values, DType type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  if (type == DType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  auto* halves = reinterpret_cast<uint16_t*>(bytes.data());
  std::ranges::transform(values, halves, to_bf16);
  return bytes;
}

void decode(std::span<const std::byte> bytes, DType type, std::vector<float>& values) {
  require(type == DType::f32 || type == DType::bf16, ExitCode::internal, "bench: {} read as f32",
          name_of(type));
  values.resize(bytes.size() / size_of(type));
  if (type == DType::f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  const auto* halves = reinterpret_cast<const uint16_t*>(bytes.data());
  for (size_t i = 0; i < values.size(); ++i) values[i] = from_bf16(halves[i]);
}

// Fills a view with copies of a block.
void tile(Stream& stream, TensorView view, std::span<const std::byte> block) {
  const int64_t count = view.elements();
  int64_t filled = std::min(count, static_cast<int64_t>(block.size() / size_of(view.dtype)));
  copy_to_device(stream, block.first(static_cast<size_t>(filled) * size_of(view.dtype)),
                 view.range(0, filled));
  while (filled < count) {
    const int64_t more = std::min(filled, count - filled);
    copy(stream, view.range(0, more), view.range(filled, filled + more));
    filled += more;
  }
  stream.synchronize();  // the block may go
}

TensorView elements_of(const Matrix& m, int64_t first_row, int64_t rows) {
  const auto skip = static_cast<size_t>(first_row * m.stride) * size_of(m.dtype);
  return {m.data + skip, {(rows - 1) * m.stride + m.cols}, m.dtype};
}

}  // namespace

void fill_random(Stream& stream, TensorView view, uint64_t seed, float low, float high) {
  std::vector<float> values(static_cast<size_t>(std::min(kPeriod, view.elements())));
  const uint64_t start = mix64(seed + 1);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * static_cast<float>(mix64(start + i) >> 40) * 0x1p-24f;
  tile(stream, view, encode(values, view.dtype));
}

void fill_poison(Stream& stream, TensorView view) {
  const std::vector<std::byte> block(size_t{1} << 20, std::byte{0xFF});
  tile(stream, view, block);
}

TensorView BenchData::take(Shape shape, DType type) {
  const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(type);
  const size_t free = device_.free_bytes();
  if (bytes + kSpareBytes > free) throw TooLarge{bytes, free};
  buffers_.emplace_back(bytes, Memory::device);
  return {buffers_.back().data(), shape, type};
}

TensorView BenchData::random(Shape shape, DType type, float low, float high) {
  const TensorView view = take(shape, type);
  fill_random(stream(), view, 1000 + seed_++, low, high);
  return view;
}

TensorView BenchData::poisoned(Shape shape, DType type) {
  const TensorView view = take(shape, type);
  fill_poison(stream(), view);
  return view;
}

TensorView BenchData::bytes(std::span<const std::byte> values) {
  const TensorView view = take({ceil_div(static_cast<int64_t>(values.size()), 4)}, DType::i32);
  std::vector<std::byte> padded(values.begin(), values.end());
  padded.resize(view.bytes());
  copy_to_device(stream(), padded, view);
  stream().synchronize();
  return view;
}

TensorView BenchData::integers(std::span<const int32_t> values) {
  return bytes(std::as_bytes(values));
}

TensorView BenchData::random_integers(int64_t count, int64_t limit) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  const uint64_t start = mix64(seed_++);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int32_t>(mix64(start + i) % static_cast<uint64_t>(limit));
  return integers(values);
}

StepState* BenchData::state(const StepState& values) {
  return reinterpret_cast<StepState*>(bytes(std::as_bytes(std::span(&values, 1))).data);
}

void BenchData::clear() {
  stream().synchronize();
  buffers_.clear();
}

StepState bench_step_state() {
  StepState state{};
  state.seed = 1234;
  state.step = 7;
  state.first_sample = 96;
  state.learning_rate = 1e-4f;
  state.correction1 = 0.5f;
  state.correction2 = 0.25f;
  state.training = 1;
  state.gradient_scale = 0.75f;
  return state;
}

std::vector<float> read(Stream& stream, TensorView view) {
  std::vector<std::byte> bytes(view.bytes());
  copy_to_host(stream, view, bytes);
  stream.synchronize();
  std::vector<float> values;
  decode(bytes, view.dtype, values);
  return values;
}

std::vector<int32_t> read_integers(Stream& stream, TensorView view) {
  std::vector<int32_t> values(static_cast<size_t>(view.elements()));
  copy_to_host(stream, view, std::as_writable_bytes(std::span(values)));
  stream.synchronize();
  return values;
}

void for_each_row(Stream& stream, const Matrix& m,
                  const std::function<void(int64_t, std::span<const float>)>& use) {
  const int64_t step = std::max<int64_t>(1, kPieceElements / m.stride);
  for (int64_t first = 0; first < m.rows; first += step) {
    const int64_t rows = std::min(step, m.rows - first);
    const std::vector<float> values = read(stream, elements_of(m, first, rows));
    for (int64_t r = 0; r < rows; ++r)
      use(first + r, std::span(values).subspan(static_cast<size_t>(r * m.stride),
                                               static_cast<size_t>(m.cols)));
  }
}

std::vector<float> read_row(Stream& stream, const Matrix& m, int64_t row) {
  return read(stream, elements_of(m, row, 1));
}

std::vector<std::vector<float>> read_lines(Stream& stream, const Matrix& m, Axis axis,
                                           std::span<const int64_t> which) {
  std::vector<std::vector<float>> lines;
  if (axis == Axis::rows) {
    for (int64_t row : which) lines.push_back(read_row(stream, m, row));
    return lines;
  }
  lines.resize(which.size());
  for_each_row(stream, m, [&](int64_t, std::span<const float> row) {
    for (size_t i = 0; i < which.size(); ++i)
      lines[i].push_back(row[static_cast<size_t>(which[i])]);
  });
  return lines;
}

std::vector<int64_t> samples(int64_t count, size_t most) {
  std::set<int64_t> chosen{0, count - 1};
  const size_t wanted = std::min(most, static_cast<size_t>(count));
  for (uint64_t i = 0; chosen.size() < wanted; ++i)
    chosen.insert(static_cast<int64_t>(mix64(i + 5) % static_cast<uint64_t>(count)));
  return {chosen.begin(), chosen.end()};
}

}  // namespace trireme::app
