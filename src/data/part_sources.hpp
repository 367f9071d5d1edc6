// The sources of samples that open_data puts together: one dataset in either order, and blends.
#pragma once

#include <memory>
#include <vector>

#include "trireme/data/blend_order.hpp"
#include "trireme/data/random_windows.hpp"
#include "trireme/data/token_source.hpp"

namespace trireme {

// A dataset and, where its documents have counted and other tokens, their flags: a store of the
// same lengths that holds 1 for tokens whose loss counts, 0 for others.
struct OpenDataset {
  std::shared_ptr<const SequenceStore> tokens, flags;
};

class GptSource : public TokenSource {
 public:
  GptSource(OpenDataset data, const GptOrder::Options& options,
            std::shared_ptr<IndexMemory> memory);
  int64_t samples() const override { return order_.samples(); }
  void sample(int64_t index, std::span<int32_t> tokens) const override;
  bool flagged() const override { return data_.flags != nullptr; }
  void flags(int64_t index, std::span<int32_t> flags) const override;
  std::string description() const override;

 private:
  OpenDataset data_;
  GptOrder order_;
  int64_t sequences_;
};

class WindowSource : public TokenSource {
 public:
  // `samples` windows; kOneEpoch: as many as the range has room for.
  WindowSource(OpenDataset data, SplitRange range, int64_t sequence, uint64_t seed, DataSplit split,
               int64_t samples);
  int64_t samples() const override { return samples_; }
  void sample(int64_t index, std::span<int32_t> tokens) const override;
  bool flagged() const override { return data_.flags != nullptr; }
  void flags(int64_t index, std::span<int32_t> flags) const override;
  std::string description() const override;

 private:
  void read(const SequenceStore& store, int64_t index, std::span<int32_t> out) const;
  OpenDataset data_;
  RandomWindows windows_;
  int64_t tokens_, sequence_, samples_;
};

class BlendSource : public TokenSource {
 public:
  using Parts = std::vector<std::unique_ptr<TokenSource>>;
  BlendSource(Parts parts, BlendOrder order) : parts_(std::move(parts)), order_(std::move(order)) {}
  int64_t samples() const override { return order_.samples(); }
  void sample(int64_t index, std::span<int32_t> tokens) const override;
  bool flagged() const override;
  void flags(int64_t index, std::span<int32_t> flags) const override;
  std::string description() const override;

 private:
  Parts parts_;
  BlendOrder order_;
};

}  // namespace trireme
