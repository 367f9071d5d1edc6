#include "trireme/parallel/replica_check.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "trireme/base/random.hpp"

namespace trireme {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;

// Depends on every bit and its place.
uint64_t checksum(Stream& stream, const TensorView& view, std::vector<std::byte>& work) {
  const TensorView flat = view.as({view.elements()});
  uint64_t sum = 0, place = 0;
  for (int64_t first = 0; first < flat.elements(); first += kPieceElements) {
    const TensorView piece = flat.range(first, std::min(first + kPieceElements, flat.elements()));
    const std::span<std::byte> bytes = std::span(work).first(piece.bytes());
    copy_to_host(stream, piece, bytes);
    stream.synchronize();
    const size_t width = size_of(view.dtype);
    for (size_t i = 0; i < bytes.size(); i += width) {
      uint64_t bits = 0;
      for (size_t b = 0; b < width; ++b)
        bits |= static_cast<uint64_t>(std::to_integer<uint8_t>(bytes[i + b])) << (8 * b);
      sum += mix64(mix64(++place) ^ bits);
    }
  }
  return sum;
}

class Comparison {
 public:
  Comparison(const ParameterStore& parameters, Device& device)
      : entries_(parameters.table().entries()) {
    std::vector<std::byte> work(static_cast<size_t>(kPieceElements) * size_of(DType::f32));
    for (size_t e = 0; e < entries_.size(); ++e)
      sums_.push_back(checksum(device.compute(), parameters.value(static_cast<int>(e)), work));
  }

  // Collective over `group`, whose members must select the same parameters.
  void over(const Communicator& group, const std::function<bool(const ParameterSpec&)>& selected) {
    if (group.size() == 1) return;
    std::vector<size_t> chosen;
    for (size_t e = 0; e < entries_.size(); ++e)
      if (selected(entries_[e].spec)) chosen.push_back(e);
    std::string mine;
    for (const size_t e : chosen)
      mine.append(reinterpret_cast<const char*>(&sums_[e]), sizeof(uint64_t));
    const std::vector<std::string> all = group.gather_all(mine);
    for (const std::string& other : all)
      for (size_t i = 0; i < chosen.size(); ++i) {
        const size_t at = i * sizeof(uint64_t);
        if (other.compare(at, sizeof(uint64_t), all.front(), at, sizeof(uint64_t)) != 0)
          different_.insert(entries_[chosen[i]].spec.name);
      }
  }

  std::vector<std::string> agree(const Communicator& world) const {
    std::string mine;
    for (const std::string& name : different_) mine += name + "\n";
    std::set<std::string> names;
    for (const std::string& lines : world.gather_all(mine)) {
      std::istringstream stream(lines);
      for (std::string name; std::getline(stream, name);) names.insert(name);
    }
    return {names.begin(), names.end()};
  }

 private:
  const std::vector<ParameterEntry>& entries_;
  std::vector<uint64_t> sums_;
  std::set<std::string> different_;
};

}  // namespace

std::vector<std::string> replica_mismatch(const ParameterStore& parameters, const ProcessGrid& grid,
                                          Device& device) {
  Comparison comparison(parameters, device);
  comparison.over(grid.dp(), [](const ParameterSpec&) { return true; });
  comparison.over(grid.tp(), [](const ParameterSpec& s) { return s.split == Split::none; });
  comparison.over(grid.kv_copies(),
                  [](const ParameterSpec& s) { return s.extra_sum == ExtraSum::kv_copies; });
  comparison.over(grid.tied_embedding(),
                  [](const ParameterSpec& s) { return s.extra_sum == ExtraSum::tied; });
  return comparison.agree(grid.world());
}

}  // namespace trireme
