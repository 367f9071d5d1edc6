#include "data/part_sources.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {

GptSource::GptSource(OpenDataset data, const GptOrder::Options& options,
                     std::shared_ptr<IndexMemory> memory)
    : data_(std::move(data)),
      order_(data_.tokens->sequences(), options, std::move(memory)),
      sequences_(options.range.size()) {}

void GptSource::sample(int64_t index, std::span<int32_t> tokens) const {
  order_.read(*data_.tokens, index, tokens);
}

void GptSource::flags(int64_t index, std::span<int32_t> flags) const {
  if (!flagged()) return TokenSource::flags(index, flags);
  order_.read(*data_.flags, index, flags);
}

std::string GptSource::description() const {
  return fmt::format("{} tokens in {} sequences, {} epoch(s) make {} samples{}",
                     order_.tokens_per_epoch(), sequences_, order_.plan().epochs, samples(),
                     order_.plan().last_epoch_apart ? ", the last epoch shuffled apart" : "");
}

WindowSource::WindowSource(OpenDataset data, SplitRange range, int64_t sequence, uint64_t seed,
                           DataSplit split, int64_t samples)
    : data_(std::move(data)),
      windows_(range, sequence, seed, split),
      tokens_(range.size()),
      sequence_(sequence),
      samples_(samples == kOneEpoch ? (range.size() - 1) / sequence : samples) {}

void WindowSource::read(const SequenceStore& store, int64_t index, std::span<int32_t> out) const {
  require(index >= 0 && index < samples_, ExitCode::internal, "sample {} of {}", index, samples_);
  require(std::ssize(out) == sequence_ + 1, ExitCode::internal,
          "a sample of {} tokens read into {}", sequence_ + 1, out.size());
  store.read_across(windows_.start(index), out);
}

void WindowSource::sample(int64_t index, std::span<int32_t> tokens) const {
  read(*data_.tokens, index, tokens);
}

void WindowSource::flags(int64_t index, std::span<int32_t> flags) const {
  if (!flagged()) return TokenSource::flags(index, flags);
  read(*data_.flags, index, flags);
}

std::string WindowSource::description() const {
  return fmt::format("{} random windows of {} tokens out of {}", samples_, sequence_, tokens_);
}

void BlendSource::sample(int64_t index, std::span<int32_t> tokens) const {
  const BlendOrder::Place place = order_.at(index);
  parts_[static_cast<size_t>(place.dataset)]->sample(place.sample, tokens);
}

bool BlendSource::flagged() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->flagged(); });
}

void BlendSource::flags(int64_t index, std::span<int32_t> flags) const {
  const BlendOrder::Place place = order_.at(index);
  const TokenSource& part = *parts_[static_cast<size_t>(place.dataset)];
  part.flags(place.sample, flags);
}

std::string BlendSource::description() const {
  constexpr size_t kShown = 8;
  std::string shares;
  for (size_t d = 0; d < std::min(parts_.size(), kShown); ++d)
    shares += fmt::format("{}{}", d == 0 ? "" : ", ", order_.used()[d]);
  if (parts_.size() > kShown) shares += ", ...";
  return fmt::format("a blend of {} datasets makes {} samples ({})", parts_.size(), samples(),
                     shares);
}

}  // namespace trireme
