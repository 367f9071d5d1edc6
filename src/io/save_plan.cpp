// Exchange of slice lists.
#include "io/save_plan.hpp"

#include <map>

#include "io/packing.hpp"
#include "io/slice_geometry.hpp"

namespace trireme::io {
namespace {

struct Merged {
  DType dtype = DType::f32;
  Shape whole;
  std::vector<Piece> pieces;
};

class Faults {
 public:
  void add(const std::string& fault) {
    if (++count_ <= kShown) text_ += (text_.empty() ? "" : "; ") + fault;
  }
  void throw_any() const {
    require(count_ == 0, ExitCode::internal,
            "cannot save, the slices are not the whole state: {}{}", text_,
            count_ > kShown ? fmt::format("; and {} more", count_ - kShown) : "");
  }

 private:
  static constexpr int kShown = 10;
  int count_ = 0;
  std::string text_;
};

void merge_rank(int rank, const std::string& packed, std::map<std::string, Merged>& tensors,
                Faults& faults) {
  Unpacker reader(packed);
  while (!reader.done()) {
    const std::string name = reader.take_text();
    const auto dtype = reader.take<DType>();
    const auto whole = reader.take<Shape>();
    const auto origin = reader.take<Shape>();
    const auto extent = reader.take<Shape>();
    auto [place, is_new] = tensors.try_emplace(name);
    Merged& tensor = place->second;
    if (is_new) {
      tensor.dtype = dtype;
      tensor.whole = whole;
      const std::string fault = name_fault(name);
      if (!fault.empty()) faults.add(fault);
    }
    if (!(tensor.whole == whole) || tensor.dtype != dtype)
      faults.add(fmt::format("{} is {} {} on rank {} and {} {} on rank {}", name,
                             name_of(tensor.dtype), tensor.whole.text(), tensor.pieces[0].rank,
                             name_of(dtype), whole.text(), rank));
    else
      tensor.pieces.push_back({rank, origin, extent});
  }
}

}  // namespace

std::string pack_slices(std::span<const GlobalSlice> slices) {
  std::string packed;
  for (const GlobalSlice& slice : slices) {
    if (slice.local.empty()) continue;
    const RunWalk checked(slice.whole, slice.origin, slice.local.shape, slice.name);
    require(slice.local.data != nullptr, ExitCode::internal, "{} has no data", slice.name);
    put_text(packed, slice.name);
    put(packed, slice.local.dtype);
    put(packed, slice.whole);
    put(packed, slice.origin);
    put(packed, slice.local.shape);
  }
  return packed;
}

std::vector<StoredTensor> merge_slices(std::span<const std::string> packed) {
  std::map<std::string, Merged> tensors;
  Faults faults;
  for (size_t rank = 0; rank < packed.size(); ++rank)
    merge_rank(static_cast<int>(rank), packed[rank], tensors, faults);
  std::vector<StoredTensor> merged;
  for (auto& [name, tensor] : tensors) {
    const std::string fault = coverage_fault(name, tensor.whole, std::move(tensor.pieces));
    if (!fault.empty()) faults.add(fault);
    merged.push_back({name, tensor.dtype, tensor.whole, 0, {}});
  }
  faults.throw_any();
  require(!merged.empty(), ExitCode::internal, "cannot save: no rank has anything to save");
  return merged;
}

std::string pack_index(const FileIndex& index) {
  std::string packed;
  put(packed, index.file_bytes);
  put(packed, index.header_offset);
  put(packed, index.header_bytes);
  put(packed, index.records_offset);
  put(packed, index.structure_sum);
  for (const StoredTensor& tensor : index.tensors) {
    put_text(packed, tensor.name);
    put(packed, tensor.dtype);
    put(packed, tensor.whole);
    put(packed, tensor.offset);
  }
  return packed;
}

FileIndex unpack_index(const std::string& packed) {
  Unpacker reader(packed);
  FileIndex index;
  index.file_bytes = reader.take<int64_t>();
  index.header_offset = reader.take<int64_t>();
  index.header_bytes = reader.take<int64_t>();
  index.records_offset = reader.take<int64_t>();
  index.structure_sum = reader.take<ElementSum>();
  while (!reader.done()) {
    StoredTensor tensor;
    tensor.name = reader.take_text();
    tensor.dtype = reader.take<DType>();
    tensor.whole = reader.take<Shape>();
    tensor.offset = reader.take<int64_t>();
    index.tensors.push_back(std::move(tensor));
  }
  return index;
}

}  // namespace trireme::io
