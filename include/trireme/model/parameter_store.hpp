// Memory of the parameters: flat value and gradient buffers, one pair for each group of the table.
#pragma once

#include <span>
#include <vector>

#include "trireme/device/device.hpp"
#include "trireme/model/parameter_table.hpp"

namespace trireme {

enum class ParameterUse : uint8_t {
  training,
  inference,  // no memory for gradients: their views have none
};

class ParameterStore {
 public:
  // Takes values (compute type) and gradients (f32) from the arena; a dry arena only counts. The
  // table must outlive the store.
  ParameterStore(const ParameterTable& table, DType compute, Arena& arena,
                 ParameterUse use = ParameterUse::training);

  const ParameterTable& table() const { return *table_; }
  DType compute() const { return compute_; }
  TensorView value(int entry) const;     // local shape, compute type
  TensorView gradient(int entry) const;  // local shape, f32
  // `count` packed neighbours as one matrix [sum of rows, row elements].
  TensorView packed_value(int first_entry, int count) const;
  TensorView packed_gradient(int first_entry, int count) const;
  TensorView group_values(int group) const { return values_[static_cast<size_t>(group)]; }
  TensorView group_gradients(int group) const { return gradients_[static_cast<size_t>(group)]; }

  void zero_gradients(Stream& stream) const;
  // Before values are loaded: what pads them must be finite.
  void zero_values(Stream& stream) const;
  // Real elements of all entries as slices of the whole tensors, named prefix + name.
  std::vector<GlobalSlice> value_slices(const std::string& prefix) const;
  // Gradients of the entries that count, each logical element on one rank of a (tp, pp) plane.
  std::vector<GlobalSlice> counted_gradient_slices(const std::string& prefix) const;

 private:
  const ParameterTable* table_;
  DType compute_;
  std::vector<TensorView> values_, gradients_;
};

}  // namespace trireme
