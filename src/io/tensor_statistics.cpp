#include "trireme/io/tensor_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/failure.hpp"
#include "io/posix_file.hpp"

namespace trireme {
namespace {

double value_at(DType dtype, const std::byte* place) {
  const auto as = [place]<class T>(T value) {
    std::memcpy(&value, place, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return as(float{});
    case DType::bf16:
      return from_bf16(as(uint16_t{}));
    case DType::i32:
      return as(int32_t{});
    case DType::u16:
      return as(uint16_t{});
  }
  fail(ExitCode::internal, "no numbers for element type {}", static_cast<int>(dtype));
}

// Mean and sum of squared distances from it, piece by piece (Welford).
struct Running {
  int64_t count = 0;
  double mean = 0, squares = 0;
  void add(double value) {
    ++count;
    const double distance = value - mean;
    mean += distance / static_cast<double>(count);
    squares += distance * (value - mean);
  }
};

}  // namespace

TensorStatistics statistics_of(const CheckpointFile& file, const StoredTensor& tensor) {
  constexpr int64_t kBytes = int64_t{8} << 20;
  TensorStatistics s;
  Running running;
  s.least = std::numeric_limits<double>::infinity();
  s.greatest = -s.least;
  const auto width = static_cast<int64_t>(size_of(tensor.dtype));
  const int64_t count = tensor.whole.elements(), step = kBytes / width;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kBytes, tensor.bytes())));
  for (int64_t at = 0; at < count; at += step) {
    const int64_t elements = std::min(step, count - at);
    const std::span<std::byte> piece =
        std::span(buffer).first(static_cast<size_t>(elements * width));
    file.read(tensor, at, piece);
    for (int64_t i = 0; i < elements; ++i) {
      const double value = value_at(tensor.dtype, piece.data() + i * width);
      s.nans += std::isnan(value) ? 1 : 0;
      s.infinities += std::isinf(value) ? 1 : 0;
      if (!std::isfinite(value)) continue;
      running.add(value);
      s.zeros += value == 0 ? 1 : 0;
      s.least = std::min(s.least, value);
      s.greatest = std::max(s.greatest, value);
    }
  }
  if (running.count == 0) s.least = s.greatest = 0;
  s.mean = running.mean;
  if (running.count > 0)
    s.deviation = std::sqrt(running.squares / static_cast<double>(running.count));
  return s;
}

BesideCheckpoint read_beside(const std::filesystem::path& checkpoint) {
  constexpr int64_t kMost = int64_t{1} << 20;
  BesideCheckpoint beside;
  std::filesystem::path path = checkpoint;
  [[maybe_unused]] const auto ignored = io::attempt([&] {
    const auto json = nlohmann::json::parse(
        io::read_text_file(path.replace_extension(".json"), kMost), nullptr, false);
    const auto take = [&](const char* key, std::string& text) {
      if (json.is_object() && json.contains(key) && json[key].is_string())
        text = json[key].get<std::string>();
    };
    take("grid", beside.grid);
    take("versions", beside.versions);
  });
  return beside;
}

}  // namespace trireme
