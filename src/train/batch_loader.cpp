#include "trireme/train/batch_loader.hpp"

#include <algorithm>

#include "trireme/data/documents.hpp"

namespace trireme {

BatchLoader::BatchLoader(const RankPlan& plan, const BatchMemory& memory,
                         const TargetOptions& options, Stream& stream)
    : plan_(plan), memory_(memory), options_(options) {
  const int64_t n = plan.chunk.batch.tokens();
  const auto count = static_cast<size_t>(n * plan.pipeline.micro_batches);
  for (Host& host : host_) {
    host.memory = Buffer(5 * count * 4, Memory::pinned);
    host.inputs = {reinterpret_cast<int32_t*>(host.memory.data()), count};
    host.targets = {host.inputs.data() + count, count};
    host.starts = {host.targets.data() + count, count};
    host.positions = {host.starts.data() + count, count};
    host.mask = {reinterpret_cast<float*>(host.positions.data() + count), count};
  }
  const std::span<int32_t> positions = host_[0].inputs.first(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    positions[static_cast<size_t>(i)] = static_cast<int32_t>(i % plan.chunk.batch.sequence);
  copy_to_device(stream, std::as_bytes(positions), memory_.positions.range(0, n));
  stream.synchronize();
}

void BatchLoader::prepare(const TokenSource* source, const BatchWalk& walk, int64_t consumed,
                          int64_t end) {
  const Prepared what{source, consumed, end, walk.micro_batches()};
  if (what == prepared_) return;
  prepared_ = what;
  walk_ = walk;
  if (reads()) read(*source, walk, what);
}

void BatchLoader::read(const TokenSource& source, const BatchWalk& walk, const Prepared& what) {
  const int64_t length = plan_.chunk.batch.sequence, rows = plan_.chunk.batch.micro;
  std::vector<int32_t> tokens(static_cast<size_t>(length) + 1);
  Host& host = host_[next_];
  host.samples.clear();
  host.documents.assign(static_cast<size_t>(what.micro_batches), {});
  const auto step = static_cast<size_t>(length);
  size_t at = 0;
  for (int64_t m = 0; m < what.micro_batches; ++m) {
    for (int64_t row = 0; row < rows; ++row, at += step) {
      const int64_t sample = walk.sample(what.consumed, m, plan_.here.dp, row);
      source.sample(std::min(sample, what.end - 1), tokens);
      if (keeps_numbers_) host.samples.push_back({sample, sum_of_tokens(tokens)});
      make_targets(tokens, options_, host.inputs.subspan(at, step), host.targets.subspan(at, step),
                   host.mask.subspan(at, step));
      if (source.flagged()) {
        source.flags(std::min(sample, what.end - 1), tokens);
        leave_out(tokens, host.mask.subspan(at, step));
      }
      if (sample >= what.end) std::ranges::fill(host.mask.subspan(at, step), 0.0f);
      if (plan_.resets.any())
        host.documents[static_cast<size_t>(m)].add(
            reset_documents(host.inputs.subspan(at, step), host.starts.subspan(at, step),
                            host.positions.subspan(at, step)));
    }
  }
}

DocumentSizes BatchLoader::reset_documents(std::span<const int32_t> inputs,
                                           std::span<int32_t> starts,
                                           std::span<int32_t> positions) const {
  const DocumentSizes sizes = find_documents(inputs, plan_.resets.end_of_document, starts);
  for (size_t i = 0; i < inputs.size(); ++i) positions[i] = static_cast<int32_t>(i) - starts[i];
  return sizes;
}

StepBatch BatchLoader::upload(Stream& stream) {
  const int64_t m = prepared_.micro_batches, n = plan_.chunk.batch.tokens();
  const Host& host = host_[next_];
  if (reads()) {
    next_ = 1 - next_;
    auto send = [&](auto from, const TensorView& to) {
      if (to.empty()) return;
      copy_to_device(stream, std::as_bytes(from.first(static_cast<size_t>(m * n))), to.rows(0, m));
    };
    send(host.inputs, memory_.tokens);
    send(host.targets, memory_.targets);
    send(host.mask, memory_.mask);
    send(host.starts, memory_.starts);
    if (plan_.resets.positions) send(host.positions, memory_.positions);
  }
  prepared_ = {};
  StepBatch batch;
  auto row = [&](const TensorView& view, int64_t i) {
    return view.empty() ? TensorView{} : view.rows(i, i + 1).as({n});
  };
  for (int64_t i = 0; i < m; ++i) {
    const bool apart = !memory_.starts.empty();
    const DocumentSizes sizes = apart ? host.documents[static_cast<size_t>(i)] : DocumentSizes{};
    batch.micro_batches.push_back(
        {.tokens = row(memory_.tokens, i),
         .targets = row(memory_.targets, i),
         .mask = row(memory_.mask, i),
         .positions = row(memory_.positions, plan_.resets.positions ? i : 0),
         .sample_offset = walk_.sample(0, i, plan_.here.dp, 0),
         .starts = row(memory_.starts, i),
         .documents = sizes.count,
         .longest_document = sizes.longest});
  }
  return batch;
}

}  // namespace trireme
