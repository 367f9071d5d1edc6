#include "io/load_plan.hpp"

#include <set>

#include "io/packing.hpp"
#include "io/slice_geometry.hpp"

namespace trireme::io {
namespace {

// A rectangle of a tensor, comparable.
struct Place {
  uint32_t tensor = 0;
  std::array<int64_t, 4> origin = {}, extent = {};
  auto operator<=>(const Place&) const = default;
};

uint32_t index_of(const CheckpointFile& file, const std::string& name) {
  return static_cast<uint32_t>(file.find(name) - file.tensors().data());
}

}  // namespace

LoadPlan plan_load(const Communicator& world, const CheckpointFile& file,
                   std::span<const GlobalSlice> mine) {
  std::string packed;
  for (const GlobalSlice& slice : mine) {
    put(packed, index_of(file, slice.name));
    put(packed, slice.origin);
    put(packed, slice.local.shape);
  }
  LoadPlan plan;
  std::set<Place> seen;
  std::vector<std::vector<Piece>> pieces(file.tensors().size());
  const std::vector<std::string> all = world.gather_all(packed);
  for (int rank = 0; rank < world.size(); ++rank) {
    Unpacker reader(all[static_cast<size_t>(rank)]);
    while (!reader.done()) {
      const auto tensor = reader.take<uint32_t>();
      const auto origin = reader.take<Shape>(), extent = reader.take<Shape>();
      const bool first = seen.insert({tensor, origin.extent, extent.extent}).second;
      if (first) pieces[tensor].push_back({rank, origin, extent});
      if (rank == world.rank()) plan.counts.push_back(first);
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const StoredTensor& tensor = file.tensors()[i];
    plan.covered.push_back(!pieces[i].empty() &&
                           coverage_fault(tensor.name, tensor.whole, pieces[i]).empty());
  }
  return plan;
}

}  // namespace trireme::io
