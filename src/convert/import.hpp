// Private to convert: what all imports have in common.
#pragma once

#include <string>
#include <vector>

#include "trireme/convert/convert.hpp"
#include "trireme/convert/hf_config.hpp"
#include "trireme/convert/tensor_map.hpp"

namespace trireme::convert {

// A model that was read, on every rank.
struct Imported {
  HfModel hf;
  ForeignModel foreign;
  std::vector<TensorLink> links;
  std::vector<std::filesystem::path> kept;  // small files to keep
};

// Shape of a model as a deck's sections say it; sequences are as long as can be.
ModelShape shape_of(const ModelSettings& model);

// Collective. Writes kept files, deck and checkpoint, in this order.
ConvertReport finish_import(const CheckpointContext& context, const ImportOptions& options,
                            const Imported& imported);

}  // namespace trireme::convert
