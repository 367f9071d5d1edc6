#include "trireme/model/parameter_store.hpp"

namespace trireme {

ParameterStore::ParameterStore(const ParameterTable& table, DType compute, Arena& arena,
                               ParameterUse use)
    : table_(&table), compute_(compute) {
  Arena none = Arena::dry();
  Arena& for_gradients = use == ParameterUse::training ? arena : none;
  for (const ParameterGroup& group : table.groups()) {
    values_.push_back(arena.take({group.count}, compute, "weights"));
    gradients_.push_back(for_gradients.take({group.count}, DType::f32, "gradients"));
  }
}

namespace {

TensorView piece(const TensorView& flat, const ParameterEntry& entry, Shape shape) {
  return flat.range(entry.offset, entry.offset + shape.elements()).as(shape);
}

}  // namespace

TensorView ParameterStore::value(int entry) const {
  const ParameterEntry& e = table_->entries()[static_cast<size_t>(entry)];
  return piece(group_values(e.group), e, e.local);
}

TensorView ParameterStore::gradient(int entry) const {
  const ParameterEntry& e = table_->entries()[static_cast<size_t>(entry)];
  return piece(group_gradients(e.group), e, e.local);
}

namespace {

Shape packed_shape(const ParameterTable& table, int first_entry, int count) {
  Shape shape = table.entries()[static_cast<size_t>(first_entry)].local;
  for (int i = first_entry + 1; i < first_entry + count; ++i) {
    const ParameterEntry& e = table.entries()[static_cast<size_t>(i)];
    const ParameterEntry& before = table.entries()[static_cast<size_t>(i - 1)];
    require(e.group == before.group && e.offset == before.offset + before.elements(),
            ExitCode::internal, "{} is not packed behind {}", e.spec.name, before.spec.name);
    shape.extent[0] += e.local[0];
  }
  return shape;
}

}  // namespace

TensorView ParameterStore::packed_value(int first_entry, int count) const {
  const ParameterEntry& e = table_->entries()[static_cast<size_t>(first_entry)];
  return piece(group_values(e.group), e, packed_shape(*table_, first_entry, count));
}

TensorView ParameterStore::packed_gradient(int first_entry, int count) const {
  const ParameterEntry& e = table_->entries()[static_cast<size_t>(first_entry)];
  return piece(group_gradients(e.group), e, packed_shape(*table_, first_entry, count));
}

void ParameterStore::zero_gradients(Stream& stream) const {
  for (const TensorView& flat : gradients_) fill_zero(stream, flat);
}

void ParameterStore::zero_values(Stream& stream) const {
  for (const TensorView& flat : values_) fill_zero(stream, flat);
}

std::vector<GlobalSlice> ParameterStore::value_slices(const std::string& prefix) const {
  std::vector<GlobalSlice> slices;
  for (const ParameterEntry& e : table_->entries()) {
    const TensorView view = piece(group_values(e.group), e, e.local);
    for (GlobalSlice& s : slices_of(e, 0, e.elements(), view.data, compute_, prefix + e.spec.name))
      slices.push_back(std::move(s));
  }
  return slices;
}

std::vector<GlobalSlice> ParameterStore::counted_gradient_slices(const std::string& prefix) const {
  std::vector<GlobalSlice> slices;
  for (const ParameterEntry& e : table_->entries()) {
    if (!e.spec.counts) continue;
    const TensorView view = piece(group_gradients(e.group), e, e.local);
    for (GlobalSlice& s :
         slices_of(e, 0, e.elements(), view.data, DType::f32, prefix + e.spec.name))
      slices.push_back(std::move(s));
  }
  return slices;
}

}  // namespace trireme
