// Reads the samples of a step on the host and brings them to the device. Only the first stage needs
// inputs, only the last one targets; the ranks between read nothing, unless documents reset
// positions or attention.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/batch_walk.hpp"
#include "trireme/data/documents.hpp"
#include "trireme/data/targets.hpp"
#include "trireme/data/token_source.hpp"
#include "trireme/device/device.hpp"
#include "trireme/parallel/pipeline.hpp"
#include "trireme/train/rank_plan.hpp"
#include "trireme/train/sample_log.hpp"

namespace trireme {

class BatchLoader {
 public:
  // `memory` outlives the loader. Takes pinned host memory for two steps, so that the next one is
  // read while the device works on this one.
  BatchLoader(const RankPlan& plan, const BatchMemory& memory, const TargetOptions& options,
              Stream& stream);

  bool reads() const { return plan_.first_stage() || plan_.last_stage() || plan_.resets.any(); }
  // Reads the micro-batches of this dp rank in the global batch that starts at sample `consumed` of
  // `source` into host memory; nothing where they were read last. Samples from `end` on do not
  // count (mask 0): they fill the last batch of an evaluation. `source` may be null where `reads()`
  // is false. Local. Throws what the source throws.
  void prepare(const TokenSource* source, const BatchWalk& walk, int64_t consumed, int64_t end);
  // Keeps the numbers of samples and sums over their tokens from now on.
  void keep_numbers() { keeps_numbers_ = true; }
  // Of the samples of the last upload, in the order of rows and micro-batches.
  std::span<const LoggedSample> uploaded() const { return host_[1 - next_].samples; }
  // What was prepared last, to the device. The work of the upload before the last one must be done.
  StepBatch upload(Stream& stream);

 private:
  struct Host {
    Buffer memory;  // [micro-batches, tokens] each
    std::span<int32_t> inputs, targets, starts, positions;
    std::span<float> mask;
    std::vector<DocumentSizes> documents;  // by micro-batch
    std::vector<LoggedSample> samples;     // where they are kept
  };
  struct Prepared {
    const TokenSource* source = nullptr;
    int64_t consumed = -1, end = -1, micro_batches = 0;
    bool operator==(const Prepared&) const = default;
  };
  // For one row.
  DocumentSizes reset_documents(std::span<const int32_t> inputs, std::span<int32_t> starts,
                                std::span<int32_t> positions) const;
  void read(const TokenSource& source, const BatchWalk& walk, const Prepared& what);
  RankPlan plan_;
  BatchMemory memory_;
  TargetOptions options_;
  std::array<Host, 2> host_;
  bool keeps_numbers_ = false;
  size_t next_ = 0;  // of host_: read into
  Prepared prepared_;
  BatchWalk walk_;
};

}  // namespace trireme
