// The sample order of Megatron's GPTDataset for one dataset and one split.
//
// The split's sequences are repeated for as many epochs as the requested samples need, shuffled as
// documents and laid end to end; sample j is the T+1 tokens from token j*T of that row (neighbours
// share one token); then the samples are shuffled. Documents of all epochs are shuffled together,
// except that the last epoch is kept apart where fewer than 80 % of its samples are needed. A
// request below one epoch still has the whole epoch's samples to draw from. The order depends on
// the number of requested samples. Everything is a pure function of (lengths, range, T, requested,
// seed): resuming needs no state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/numpy_random.hpp"
#include "trireme/data/sequence_store.hpp"
#include "trireme/data/split.hpp"

namespace trireme {

constexpr int64_t kOneEpoch = -1;  // a request for every sample of one pass, nothing repeated

// How many epochs and samples; arithmetic only.
struct GptOrderPlan {
  int64_t epochs = 1;
  int64_t samples = 0;  // floor((epochs * tokens - 1) / T)
  bool last_epoch_apart = false;
  int64_t samples_before_last = 0;  // samples that the shuffle keeps before the last epoch's
};
// `tokens` > 0 of the split, `sequence` = T > 0, `requested` >= 0 or kOneEpoch.
// Throws Error(bad_data) where the products leave 64 bits.
GptOrderPlan plan_gpt_order(int64_t tokens, int64_t sequence, int64_t requested);

// A place in the row of documents: position in the document index, and token offset in it.
struct SamplePlace {
  int64_t position = 0;
  int64_t offset = 0;
  bool operator==(const SamplePlace&) const = default;
};

// Memory: 4 bytes a sequence and epoch, and 5 bytes a sample (9 from 2^32 - 2 samples on), all of
// it index memory.
class GptOrder {
 public:
  struct Options {
    SplitRange range;  // of sequences; must hold tokens
    int64_t sequence = 0;
    int64_t requested = 0;
    uint32_t seed = 1234;
  };
  // `lengths` are the whole dataset's; they are not copied and must outlive the order. Without
  // `memory` the order has its own.
  GptOrder(const SequenceLengths& lengths, const Options& options,
           std::shared_ptr<IndexMemory> memory = nullptr);

  const GptOrderPlan& plan() const { return plan_; }
  int64_t samples() const { return plan_.samples; }
  int64_t tokens_per_epoch() const { return tokens_; }
  std::span<const int32_t> document_index() const { return documents_; }
  // Entry k of the sample index, 0 <= k <= samples(): where unshuffled sample k starts.
  SamplePlace place(int64_t k) const;
  // The unshuffled sample that is handed out as number `index`, 0 <= index < samples().
  int64_t shuffled(int64_t index) const;
  // The T+1 tokens of sample number `index` (after shuffling), read from `store` piece by piece.
  void read(const SequenceStore& store, int64_t index, std::span<int32_t> tokens) const;

 private:
  void take_memory();
  void build_documents(NumpyRandomState& random);
  void build_places();
  void build_shuffle(NumpyRandomState& random);
  void advance(SamplePlace& place) const;  // by T tokens

  const SequenceLengths* lengths_;
  Options options_;
  int64_t tokens_ = 0;
  GptOrderPlan plan_;
  std::shared_ptr<IndexMemory> memory_;
  std::span<int32_t> documents_;
  std::span<SamplePlace> places_;  // every 16th entry of the sample index
  std::span<uint32_t> shuffle_;
  std::span<int64_t> wide_shuffle_;  // in place of shuffle_ where 32 bits are too few
};

}  // namespace trireme
