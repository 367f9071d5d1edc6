// The weights of a model that another program wrote: named tensors at places in files.
//
// Everything that the files say of themselves is checked when they are opened; tensor data are read
// on demand. Local: each rank opens the files itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/float_type.hpp"

namespace trireme {

struct ForeignTensor {
  std::string name;
  std::string dtype;              // in the file's words
  std::optional<FloatType> type;  // none: one that no weight has
  std::vector<int64_t> shape;
  size_t file = 0;
  int64_t offset = 0;  // of element 0, in bytes from the start of the file
};

class ForeignModel {
 public:
  // A directory with model.safetensors, or with model.safetensors.index.json and the files that it
  // names. Throws Error(no_input) when one is missing, Error(bad_data) for damage, for a tensor
  // that is in two files, and where index and files disagree (all differences are listed).
  static ForeignModel open_hugging_face(const std::filesystem::path& directory);
  // Tensors whose places are known already, all in one file.
  ForeignModel(const std::filesystem::path& file, std::vector<ForeignTensor> tensors);
  ~ForeignModel();
  ForeignModel(ForeignModel&&) noexcept;

  const std::vector<ForeignTensor>& tensors() const;         // by name
  const ForeignTensor* find(const std::string& name) const;  // null when there is none
  // Gives every tensor the name that `rename` makes of it. Throws Error(bad_data) when two get one.
  void rename(const std::function<std::string(const std::string&)>& rename);
  // Forgets tensors.
  void remove(const std::function<bool(const std::string&)>& selected);
  // Elements from `first` on, in the tensor's own type, to host memory.
  void read(const ForeignTensor& tensor, int64_t first, std::span<std::byte> to) const;

 private:
  struct Impl;
  explicit ForeignModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
