// Private to convert: moving all tensors of a model between a checkpoint and foreign files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/copy_block.hpp"
#include "trireme/convert/tensor_map.hpp"
#include "trireme/io/checkpoint.hpp"
#include "trireme/io/foreign_model.hpp"
#include "trireme/io/output_files.hpp"

namespace trireme::convert {

// Collective. Every tensor of `links` as "weights/NAME" into the checkpoint `path`.
SaveReport write_checkpoint(const CheckpointContext& context, const ForeignModel& foreign,
                            const std::vector<TensorLink>& links, const std::filesystem::path& path,
                            const CheckpointHeader& header, const std::string& sidecar);

// The weights of a checkpoint, the masters where it has them.
class CheckpointWeights {
 public:
  // Throws Error(bad_data) with a list unless it holds just the tensors of `links`.
  CheckpointWeights(const CheckpointFile& file, const std::vector<TensorLink>& links);
  const StoredTensor& of(const TensorLink& link) const { return *tensors_.at(link.ours); }
  const CheckpointFile& file() const { return file_; }

 private:
  const CheckpointFile& file_;
  std::map<std::string, const StoredTensor*> tensors_;
};

// A tensor to be written: its links, in any order, cover it.
struct OutputTensor {
  std::string name;
  Shape whole;
  FloatType type = FloatType::f32;
  std::vector<TensorLink> links;
  size_t file = 0;
  int64_t offset = 0;  // in bytes from the start of the file
  int64_t bytes() const { return whole.elements() * static_cast<int64_t>(size_of(type)); }
};
// The foreign tensors that the links name, in their order; types and places are left open.
std::vector<OutputTensor> output_tensors(const std::vector<TensorLink>& links);

// Collective. Each rank writes its share of the blocks of all tensors, and syncs. Throws
// Error(bad_data) for finite values that the type cannot hold.
void write_tensors(const Communicator& world, const CheckpointWeights& weights,
                   const std::vector<OutputTensor>& tensors, const OutputFiles& files);

}  // namespace trireme::convert
