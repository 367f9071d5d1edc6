// Builds the document, sample and shuffle indices of Megatron's GPTDataset. Of the sample index
// every 16th entry is kept; the rest are walked to when asked for.
#include "trireme/data/gpt_order.hpp"

#include <algorithm>
#include <numeric>

#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

constexpr int64_t kStride = 16;  // kept entries of the sample index
constexpr int64_t kExtra = 1;  // tokens of a sample beyond T, so that inputs and labels both have T

template <class T>
void shuffle_parts(std::span<T> all, int64_t first_part, NumpyRandomState& random) {
  std::iota(all.begin(), all.end(), T{0});
  random.shuffle(all.first(static_cast<size_t>(first_part)));
  random.shuffle(all.subspan(static_cast<size_t>(first_part)));
}

}  // namespace

GptOrderPlan plan_gpt_order(int64_t tokens, int64_t sequence, int64_t requested) {
  require(tokens > 0 && sequence > 0 && requested >= kOneEpoch, ExitCode::internal,
          "sample order of {} tokens, sequence {}, {} samples", tokens, sequence, requested);
  GptOrderPlan plan;
  if (requested != kOneEpoch) {
    const int64_t needed = checked_add(checked_mul(requested, sequence), kExtra);
    plan.epochs = needed / tokens + (needed % tokens != 0 ? 1 : 0);
  }
  plan.samples = (checked_mul(plan.epochs, tokens) - kExtra) / sequence;
  plan.samples_before_last = plan.samples;
  if (plan.epochs == 1) return plan;

  const int64_t before = ((plan.epochs - 1) * tokens - kExtra) / sequence;
  const int64_t from_last = requested - before;
  const int64_t per_epoch = (tokens - kExtra) / sequence;
  require(from_last >= 0 && from_last <= per_epoch + 1, ExitCode::internal,
          "{} samples from the last of {} epochs of {}", from_last, plan.epochs, per_epoch);
  plan.last_epoch_apart = from_last < static_cast<int64_t>(0.80 * static_cast<double>(per_epoch));
  if (plan.last_epoch_apart) plan.samples_before_last = before;
  return plan;
}

GptOrder::GptOrder(const SequenceLengths& lengths, const Options& options,
                   std::shared_ptr<IndexMemory> memory)
    : lengths_(&lengths), options_(options), memory_(std::move(memory)) {
  const SplitRange& range = options_.range;
  require(range.first >= 0 && range.first <= range.last && range.last <= lengths.count(),
          ExitCode::internal, "sequences {} to {} of {}", range.first, range.last, lengths.count());
  require(range.last <= INT32_MAX, ExitCode::bad_data,
          "{} sequences: this sample order counts them in 32 bits; cut the dataset in parts",
          lengths.count());
  tokens_ = lengths.start(range.last) - lengths.start(range.first);
  plan_ = plan_gpt_order(tokens_, options_.sequence, options_.requested);
  if (memory_ == nullptr) memory_ = std::make_shared<IndexMemory>();
  take_memory();
  if (memory_->built()) return;
  NumpyRandomState random(options_.seed);
  build_documents(random);
  build_places();
  build_shuffle(random);
}

void GptOrder::take_memory() {
  documents_ = memory_->take<int32_t>(checked_mul(plan_.epochs, options_.range.size()));
  places_ = memory_->take<SamplePlace>(plan_.samples / kStride + 1);
  if (plan_.samples < static_cast<int64_t>(UINT32_MAX) - 1) {
    shuffle_ = memory_->take<uint32_t>(plan_.samples);
  } else {
    wide_shuffle_ = memory_->take<int64_t>(plan_.samples);
  }
}

void GptOrder::build_documents(NumpyRandomState& random) {
  const int64_t per_epoch = options_.range.size();
  const int64_t entries = std::ssize(documents_);
  for (int64_t i = 0; i < entries; ++i)
    documents_[static_cast<size_t>(i)] = static_cast<int32_t>(options_.range.first + i % per_epoch);
  const int64_t mixed = plan_.last_epoch_apart ? entries - per_epoch : entries;
  random.shuffle(documents_.first(static_cast<size_t>(mixed)));
  random.shuffle(documents_.subspan(static_cast<size_t>(mixed)));
}

void GptOrder::advance(SamplePlace& place) const {
  int64_t remaining = options_.sequence + kExtra;
  for (;;) {
    const int64_t length = (*lengths_)[documents_[static_cast<size_t>(place.position)]];
    const int64_t left = length - place.offset;
    if (remaining <= left) {
      place.offset += remaining - kExtra;
      return;
    }
    remaining -= left;
    ++place.position;
    place.offset = 0;
  }
}

void GptOrder::build_places() {
  SamplePlace current;
  places_[0] = current;
  for (int64_t k = 1; k <= plan_.samples; ++k) {
    advance(current);
    if (k % kStride == 0) places_[static_cast<size_t>(k / kStride)] = current;
  }
}

void GptOrder::build_shuffle(NumpyRandomState& random) {
  if (wide_shuffle_.empty()) {
    shuffle_parts(shuffle_, plan_.samples_before_last, random);
  } else {
    shuffle_parts(wide_shuffle_, plan_.samples_before_last, random);
  }
}

SamplePlace GptOrder::place(int64_t k) const {
  require(k >= 0 && k <= plan_.samples, ExitCode::internal, "sample place {} of {}", k,
          plan_.samples);
  SamplePlace current = places_[static_cast<size_t>(k / kStride)];
  for (int64_t i = k / kStride * kStride; i < k; ++i) advance(current);
  return current;
}

int64_t GptOrder::shuffled(int64_t index) const {
  require(index >= 0 && index < plan_.samples, ExitCode::internal, "sample {} of {}", index,
          plan_.samples);
  const size_t i = static_cast<size_t>(index);
  return wide_shuffle_.empty() ? static_cast<int64_t>(shuffle_[i]) : wide_shuffle_[i];
}

void GptOrder::read(const SequenceStore& store, int64_t index, std::span<int32_t> tokens) const {
  require(std::ssize(tokens) == options_.sequence + kExtra, ExitCode::internal,
          "a sample of {} tokens read into {}", options_.sequence + kExtra, tokens.size());
  SamplePlace from = place(shuffled(index));
  while (!tokens.empty()) {
    const int64_t document = documents_[static_cast<size_t>(from.position)];
    const int64_t n = std::min((*lengths_)[document] - from.offset, std::ssize(tokens));
    if (n > 0) store.read(document, from.offset, tokens.first(static_cast<size_t>(n)));
    tokens = tokens.subspan(static_cast<size_t>(n));
    ++from.position;
    from.offset = 0;
  }
}

}  // namespace trireme
